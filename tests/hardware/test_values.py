"""From expressions to machines: what a text may write after `hardware` or `let`."""

from __future__ import annotations

from fractions import Fraction

import pytest

from placelang.hardware import catalogue
from placelang.hardware.constructors import CONSTRUCTORS
from placelang.hardware.hardware import Device, Hardware, HardwareError, Host, Link, Network
from placelang.hardware.values import hardware_of
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

BOX = """\
let box = node(devices = 8, device = gpu(memory = 80GiB, bf16 = 989TFLOP/s, bandwidth = 3.35TB/s),
               link = nvlink(450GB/s), network = roce(400Gb/s), host = host(memory = 2TiB, pcie = 64GB/s))
"""


def meaning(text: str) -> Hardware | HardwareError:
    """The machine of the text's `hardware` statement."""
    tree, diagnostics = parse(Source(text))
    assert not diagnostics
    lets = {s.name.text: s.value for s in tree.statements if isinstance(s, ast.Let)}
    fact = next(s for s in tree.statements if isinstance(s, ast.Fact))
    return hardware_of(fact.value, lets, catalogue.declared)


def machine(text: str) -> Hardware:
    found = meaning(text)
    assert isinstance(found, Hardware), found
    return found


def fault(text: str) -> HardwareError:
    found = meaning(text)
    assert isinstance(found, HardwareError), found
    return found


def test_a_value_of_the_text() -> None:
    found = machine(BOX + "hardware box(nodes = 4)")
    assert (found.name, found.source, found.nodes, found.devices) == ("box", "", 4, 32)
    node = found.node
    assert node.device.memory == 80 * 2**30
    assert node.device.bandwidth == 3350 * 10**9
    assert node.device.peak("bf16") == 989 * 10**12
    assert node.device.peak("fp8") is None
    assert node.link == Link("nvlink", Fraction(450 * 10**9))
    assert node.network == Network("roce", Fraction(50 * 10**9))
    assert node.host == Host(memory=Fraction(2 * 2**40), pcie=Fraction(64 * 10**9))
    assert node.nics == 8
    assert node.network_bandwidth == 400 * 10**9
    assert node.host_bandwidth == 64 * 10**9


def test_one_node_unless_said() -> None:
    assert machine(BOX + "hardware box").nodes == 1


def test_a_published_machine() -> None:
    found = machine("hardware dgx_a100(nodes = 128)")
    assert (found.name, found.devices, found.device.name) == ("dgx_a100", 1024, "a100_sxm_80gb")


def test_a_device_alone_is_a_node_of_one() -> None:
    found = machine("hardware h100")
    assert (found.name, found.devices, found.node.network) == ("h100_sxm", 1, None)
    assert found.node.network_bandwidth is None and found.node.nics is None


def test_what_the_device_knows_serves_the_node() -> None:
    found = machine("hardware node(devices = 4, device = h100_sxm)")
    assert found.node.link == found.device.link == Link("nvlink", Fraction(450 * 10**9))
    assert found.node.host_bandwidth == 63 * 10**9
    assert machine("hardware node(devices = 4, device = h100_sxm, host = host(pcie = 32GB/s))").node.host_bandwidth == (
        32 * 10**9
    )
    assert machine("hardware node(devices = 4, device = l40s)").node.host_bandwidth is None


def test_an_outer_argument_replaces_an_inner_one() -> None:
    text = "let a = dgx_a100(nodes = 2, network = roce(100Gb/s))\nlet b = a(nodes = 3)\nhardware b(devices = 4)"
    found = machine(text)
    assert (found.nodes, found.node.devices, found.node.nics) == (3, 4, 4)
    assert found.node.network == Network("roce", Fraction(12_500_000_000))
    assert found.device.name == "a100_sxm_80gb"


def test_an_argument_by_place_is_replaced_by_name() -> None:
    text = "let fast = roce(400Gb/s)\nhardware node(devices = 2, device = h100, network = fast(bandwidth = 100Gb/s))"
    assert machine(text).node.network == Network("roce", Fraction(12_500_000_000))


def test_bits_and_bytes_are_both_rates() -> None:
    bits = machine("hardware node(devices = 1, device = h100, network = ib(400Gb/s))").node.network
    assert bits == machine("hardware node(devices = 1, device = h100, network = infiniband(50GB/s))").node.network


def test_arguments_compute() -> None:
    card = "let n = 8\nlet card = gpu(memory = 8 * 10GiB, bandwidth = 4TB/s / 2)"
    device = machine(f"{card}\nhardware node(devices = n, device = card)").device
    assert device == Device("card", "gpu", Fraction(80 * 2**30), Fraction(2 * 10**12))
    assert machine("hardware gpu(memory = 90GiB - 10GiB)").device.memory == 80 * 2**30
    assert machine("hardware node(devices = 2TB / 1TB, device = h100)").devices == 2


def test_a_name_of_the_text_hides_one_of_the_catalogue() -> None:
    text = "let nvlink_4 = nvlink(1GB/s)\nhardware node(devices = 2, device = h100_sxm, link = nvlink_4)"
    found = machine(text)
    assert found.node.link == Link("nvlink", Fraction(10**9))
    assert found.device.link == Link("nvlink", Fraction(450 * 10**9)), "the catalogue does not see names of the text"


def test_a_torus_and_its_latency() -> None:
    said = "ici(peer = 45GB/s, torus = [8, 8], latency = 1us)"
    link = machine(f"hardware node(devices = 64, device = tpu_v5e, link = {said})").node.link
    assert link == Link("ici", None, Fraction(45 * 10**9), (8, 8), Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("text", "message", "argument", "at"),
    [
        ("gpu(memory = 80GB/s)", "`memory` takes bytes, this is in bytes/s", "memory", "80GB/s"),
        ("gpu(memory = 80)", "`memory` takes bytes, this is a number without a unit", "memory", "80"),
        ("gpu(bandwidth = 3TB)", "`bandwidth` takes bytes/s, this is in bytes", "bandwidth", "3TB"),
        ("gpu(bf16 = 989GB/s)", "`bf16` takes FLOP/s, this is in bytes/s", "bf16", "989GB/s"),
        ("gpu(memory = 80GiB - 80GiB)", "`memory` is not positive", "memory", "80GiB - 80GiB"),
        ("gpu(memory = 2s)", "`memory` takes bytes, this is in seconds", "memory", "2s"),
        ("gpu(memory = true)", "`memory` takes bytes, this is true or false", "memory", "true"),
        ('gpu(memory = "80GB")', "`memory` takes bytes, this is a text", "memory", '"80GB"'),
        ("gpu(memory = [80GB])", "`memory` takes bytes, this is a list", "memory", "[80GB]"),
        ("gpu(memory = nvlink_4)", "`memory` takes bytes, this is a link", "memory", "nvlink_4"),
        ("gpu(80GB)", "`gpu` takes this argument by name", "", "80GB"),
        ("gpu(memroy = 80GB)", "`gpu` has no argument `memroy`", "memroy", "80GB"),
        ("gpu(memory = 1GB, memory = 2GB)", "`memory` is given twice", "memory", "2GB"),
        ("h100(nodes = 2)", "`h100_sxm`, which is a `gpu`, is a single device and has no `nodes`", "nodes", "2"),
        ("node(devices = 8)", "`node` needs `device`: what each of them is", "", "node"),
        ("node(devices = 0, device = h100)", "`devices` is not a whole number from 1 to", "devices", "0"),
        ("node(devices = 5 / 2, device = h100)", "`devices` is not a whole number from 1 to", "devices", "5 / 2"),
        ("node(devices = 8GB, device = h100)", "`devices` takes a whole number, this is in bytes", "devices", "8GB"),
        ("node(devices = 8, device = nvlink_4)", "`device` takes a device, this is a link", "device", "nvlink_4"),
        ("node(devices = 8, device = dgx_h100)", "`device` takes a device, this is a node", "device", "dgx_h100"),
        ("node(devices = 8, device = h1000)", "no hardware is named `h1000`", "", "h1000"),
        ("node(devices = 8, device = h100, link = roce(1GB/s))", "`link` takes a link, this is a network", "link", ""),
        ("node(devices = 1099511627776, device = h100, nodes = 2)", "2,199,023,255,552 devices are more", "nodes", ""),
        ("node(devices = 2, device = h100, link = nvlink())", "`nvlink` needs `bandwidth` or `peer`", "", "nvlink"),
        (
            "node(devices = 2, device = h100, link = xgmi(1GB/s, peer = 2GB/s))",
            "one peer gets more than all",
            "peer",
            "",
        ),
        (
            "node(devices = 2, device = h100, link = ici(1GB/s, torus = 4))",
            "`torus` takes a list of whole",
            "torus",
            "4",
        ),
        ("node(devices = 2, device = h100, link = ici(1GB/s, torus = [2GB]))", "`torus` takes a whole", "torus", ""),
        ("node(devices = 2, device = h100, network = roce())", "`roce` needs `bandwidth`: of one NIC", "", "roce"),
        ("nvlink(450GB/s)", "this is a link, not a machine", "", ""),
        ("host(memory = 1TB)", "this is a host, not a machine", "", ""),
        ("gpu(memory = 1GB + 1s)", "`+` needs equal units: bytes and seconds differ", "", "1GB + 1s"),
        ("gpu(memory = 1GB * 1GB)", "bytes times bytes is nothing that a machine has", "", "1GB * 1GB"),
        ("gpu(memory = 1 / 1GB)", "a number without a unit over bytes is nothing", "", "1 / 1GB"),
        ("gpu(memory = 1GB / 0)", "this divides by zero", "", "1GB / 0"),
        ("gpu(memory = 1GB + h100)", "this computes with a device", "", "1GB + h100"),
        ("gpu(memory = 1GB < 2GB)", "no machine has such a value", "", "1GB < 2GB"),
        ("12", "this is not hardware", "", "12"),
        ('"dgx"', "this is not hardware", "", '"dgx"'),
        ("true", "this is not hardware", "", "true"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, message: str, argument: str, at: str) -> None:
    error = fault(f"hardware {text}")
    assert error.message.startswith(message)
    assert error.argument == argument
    assert error.span is not None and (not at or error.span.text == at)


def test_help_says_what_to_write() -> None:
    assert fault("hardware gpu(memory = 80GB/s)").suggestion == "for example `memory = 80GiB`"
    assert fault("hardware gpu(memroy = 80GB)").suggestion == "did you mean `memory`?"
    assert fault("hardware node(devices = 8)").suggestion == "add `device = h100_sxm`"
    assert fault("hardware h100(nodes = 2)").suggestion == "`node(devices = 8, device = h100_sxm, nodes = 4)`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("let a = b\nlet b = a\nhardware a", "`a` is defined by itself"),
        ("let a = node(devices = 2, device = a)\nhardware a", "`a` is defined by itself"),
        ("let a = 2 * a\nhardware node(devices = a, device = h100)", "`a` is defined by itself"),
        ("let dgx_h100 = dgx_h100(nodes = 4)\nhardware dgx_h100", "`dgx_h100` is defined by itself"),
        ("let n = 8\nhardware n(nodes = 4)", "`n` takes no arguments"),
    ],
)
def test_names_that_lead_nowhere_are_refused(text: str, message: str) -> None:
    assert fault(text).message == message


def test_hostile_texts_end_soon() -> None:
    doubling = "\n".join(["let a0 = 1", *(f"let a{i + 1} = a{i} + a{i}" for i in range(60))])
    assert fault(f"{doubling}\nhardware node(devices = a60, device = h100)").message
    squares = "\n".join(["let a0 = 10", *(f"let a{i + 1} = a{i} * a{i}" for i in range(30))])
    assert fault(f"{squares}\nhardware node(devices = a30, device = h100)").message == "this number is out of range"
    chain = "\n".join(["let a0 = h100", *(f"let a{i + 1} = a{i}" for i in range(1000))])
    assert "too many names away" in fault(f"{chain}\nhardware a1000").message
    sums = "\n".join(["let a0 = 1", *(f"let a{i + 1} = 1 + a{i}" for i in range(1000))])
    assert fault(f"{sums}\nhardware node(devices = a1000, device = h100)").message == "this is nested too deeply"
    assert machine(f"{sums}\nhardware node(devices = a40, device = h100)").devices == 41


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_constructors_document_their_arguments(name: str) -> None:
    constructor = CONSTRUCTORS[name]
    assert all(arg.doc for arg in constructor.args.values())
    assert constructor.positional <= len(constructor.args)
