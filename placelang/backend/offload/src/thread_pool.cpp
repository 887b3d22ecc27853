#include "thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace place {
namespace {

// The processors that the calling thread may run on; where the system can't tell, all of them.
struct Affinity {
#ifdef __linux__
  cpu_set_t set;
  bool known;

  static Affinity of_this_thread() {
    Affinity affinity;
    CPU_ZERO(&affinity.set);
    affinity.known = sched_getaffinity(0, sizeof affinity.set, &affinity.set) == 0;
    return affinity;
  }
  int count() const { return known ? CPU_COUNT(&set) : int(std::thread::hardware_concurrency()); }
  bool operator==(const Affinity& other) const {
    return known == other.known && (!known || CPU_EQUAL(&set, &other.set));
  }
#else
  static Affinity of_this_thread() { return {}; }
  int count() const { return int(std::thread::hardware_concurrency()); }
  bool operator==(const Affinity&) const { return true; }
#endif
};

// Workers leave signals to the threads of the program that they serve.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

class Pool {
 public:
  explicit Pool(const Affinity& affinity) : affinity_(affinity) {}

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    start_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  const Affinity& affinity() const { return affinity_; }

  void run(int shares, void (*task)(void*, int), void* context) {
    grow(shares - 1);
    int helpers = std::min(int(workers_.size()), shares - 1);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      task_ = task;
      context_ = context;
      shares_ = shares;
      next_share_.store(0, std::memory_order_relaxed);
      helpers_ = running_ = helpers;
      ++generation_;
    }
    if (helpers > 0) start_.notify_all();
    take_shares();
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  void grow(int wanted) {
    SignalsBlocked blocked;
    try {
      workers_.reserve(size_t(std::max(wanted, 0)));
      for (int index = int(workers_.size()); index < wanted; ++index) {
        workers_.emplace_back([this, index] { serve(index); });
      }
    } catch (const std::exception&) {
      // No more threads to be had: the ones there are take all the shares.
    }
  }

  void serve(int index) {
    unsigned seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return stopping_ || (generation_ != seen && index < helpers_); });
      if (stopping_) return;
      seen = generation_;
      lock.unlock();
      take_shares();
      lock.lock();
      if (--running_ == 0) finished_.notify_one();
    }
  }

  void take_shares() {
    for (int share; (share = next_share_.fetch_add(1, std::memory_order_relaxed)) < shares_;) task_(context_, share);
  }

  Affinity affinity_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, finished_;
  std::atomic<int> next_share_{0};
  void (*task_)(void*, int) = nullptr;
  void* context_ = nullptr;
  int shares_ = 0, helpers_ = 0, running_ = 0;
  unsigned generation_ = 0;
  bool stopping_ = false;
};

// One loop at a time. The pool is never destroyed at exit: its idle workers hold nothing, and joining them from a
// static destructor can hang a process that ends by fork or by signal.
pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
Pool* pool = nullptr;

// A child of fork() has the pool's memory but none of its threads, so it forgets the pool and makes its own. The gate
// is held across the fork, so the child never inherits it from a thread that it doesn't have.
void before_fork() { pthread_mutex_lock(&gate); }
void after_fork_in_parent() { pthread_mutex_unlock(&gate); }
void after_fork_in_child() {
  pool = nullptr;
  pthread_mutex_unlock(&gate);
}

[[maybe_unused]] const int fork_handlers = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

int default_threads() {
  int allowed = std::max(1, Affinity::of_this_thread().count());
  // OMP_NUM_THREADS may be a list, one number a nesting level: the first counts.
  const char* asked = getenv("OMP_NUM_THREADS");
  long limit = asked ? strtol(asked, nullptr, 10) : 0;
  return limit > 0 ? int(std::min(limit, long(allowed))) : allowed;
}

void parallel(int shares, void (*task)(void*, int), void* context) noexcept {
  if (shares <= 1) {
    if (shares == 1) task(context, 0);
    return;
  }
  pthread_mutex_lock(&gate);
  Affinity here = Affinity::of_this_thread();
  if (pool != nullptr && !(pool->affinity() == here)) {
    delete pool;
    pool = nullptr;
  }
  if (pool == nullptr) pool = new Pool(here);
  pool->run(shares, task, context);
  pthread_mutex_unlock(&gate);
}

}  // namespace place
