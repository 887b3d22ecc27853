"""The catalogue: every published figure stands in it unchanged, every entry says its source, unknown names get help."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from placelang import _resources
from placelang.hardware import catalogue
from placelang.hardware.hardware import DTYPES, Device, Hardware, HardwareError, Link, Network, Part
from placelang.source import Source
from placelang.syntax import ast
from placelang.syntax.parser import parse

PUBLISHED: dict[str, Any] = json.loads((Path(__file__).parent / "published.json").read_text())
FILES = sorted((_resources.data("stdlib") / "hardware").glob("*.place"))


def named(published: str) -> str:
    return re.sub("[-.]", "_", published)


def part(name: str) -> Part:
    found = catalogue.part(name)
    assert not isinstance(found, HardwareError), found
    return found


def machine(name: str) -> Hardware:
    found = catalogue.lookup(name)
    assert isinstance(found, Hardware), found
    return found


def device(name: str) -> Device:
    found = part(name)
    assert isinstance(found, Device), found
    return found


@pytest.mark.parametrize("row", PUBLISHED["devices"], ids=lambda row: str(row["id"]))
def test_devices_are_as_published(row: dict[str, Any]) -> None:
    found = device(named(row["id"]))
    assert found.name == named(row["id"])
    assert found.kind == ("tpu" if "tpu" in row["id"] else "gpu")
    assert dict(found.peaks) == row.get("peaks", {})
    if "memory" in row:
        assert found.memory == row["memory"]
    if "bandwidth" in row:
        assert found.bandwidth == row["bandwidth"]
    if "host_link" in row:
        assert found.host_link is not None and found.host_link.bandwidth == row["host_link"]
    if {"link", "peer"} & row.keys():
        assert found.link is not None
        assert found.link.bandwidth == row.get("link") and found.link.peer == row.get("peer")
        assert found.link.torus == tuple(row.get("torus", ()))
    for alias in row["aliases"]:
        assert device(named(alias)).memory == found.memory


@pytest.mark.parametrize("row", [r for r in PUBLISHED["devices"] if "system" in r], ids=lambda row: str(row["id"]))
def test_systems_are_as_published(row: dict[str, Any]) -> None:
    node = machine(row["system"]).node
    assert node.device == device(named(row["id"]))
    assert node.link == node.device.link
    assert node.devices == row.get("node_devices", 8)
    if "node_network" in row:
        assert (node.nics, node.network_bandwidth) == (row["node_nics"], row["node_network"])
    if "device_network" in row:
        assert node.network_bandwidth == row["device_network"] * node.devices


def test_every_published_node_is_covered() -> None:
    assert all("system" in row for row in PUBLISHED["devices"] if {"node_nics", "node_devices"} & row.keys())


@pytest.mark.parametrize("row", PUBLISHED["left_out"], ids=lambda row: str(row["id"]))
def test_figures_left_out_are_not_ours_and_say_why(row: dict[str, Any]) -> None:
    found = device(named(row["id"]))
    ours = dict(found.peaks) | {"memory": found.memory, "bandwidth": found.bandwidth}
    assert row["figures"] and row["why"]
    assert all(ours.get(figure) != value for figure, value in row["figures"].items())


def test_every_published_figure_names_its_source() -> None:
    short = PUBLISHED["sources"].keys()
    assert all(row["sources"] or not {"peaks", "bandwidth"} & row.keys() for row in PUBLISHED["devices"])
    assert all(row.get("source", "simumax") in short for row in PUBLISHED["left_out"])
    assert len(PUBLISHED["devices"]) == 35 and len(PUBLISHED["links"]) == 26


@pytest.mark.parametrize("row", PUBLISHED["links"], ids=lambda row: str(row["id"]))
def test_links_are_as_published(row: dict[str, Any]) -> None:
    found = part(named(row["id"]))
    assert isinstance(found, Link | Network)
    assert found.bandwidth is not None
    nics = found.nics or 1 if row["of"] == "node" and isinstance(found, Network) else 1
    assert found.bandwidth * nics == row["bytes_per_s"]


@pytest.mark.parametrize("name", catalogue.names())
def test_every_entry_is_whole(name: str) -> None:
    found = part(name)
    if isinstance(found, Device | Hardware):
        assert found.source, "says where its figures come from"
    if isinstance(found, Device):
        assert {dtype for dtype, _ in found.peaks} <= set(DTYPES)
    if isinstance(found, Hardware):
        assert found.nodes == 1, "how many there are is for the text to say"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_document_every_entry(file: Path) -> None:
    tree, diagnostics = parse(Source(file.read_text(encoding="utf-8"), str(file)))
    assert not diagnostics
    for let in tree.statements:
        assert isinstance(let, ast.Let)
        assert (let.doc == "") == isinstance(let.value, ast.Name), f"`{let.name.text}`: only an alias goes without docs"
        declared = catalogue.declared(let.name.text)
        assert not isinstance(declared, HardwareError)
        assert declared.value == let.value, "a declaration read alone is the one of the file"


def test_names_are_declared_once() -> None:
    declared = [name for file in FILES for name in re.findall(r"^let (\w+)", file.read_text("utf-8"), re.MULTILINE)]
    assert sorted(declared) == list(catalogue.names())


def test_an_alias_is_what_it_stands_for_and_a_variant_is_not() -> None:
    assert machine("h100") == machine("h100_sxm")
    assert machine("dgx_a100_80gb").name == "dgx_a100"
    assert machine("selene").name == "selene"
    assert machine("selene").node == machine("dgx_a100").node
    assert device("v100_sxm3_32gb").source == device("v100_sxm2_32gb").source != ""


def test_arguments_are_replaced() -> None:
    found = catalogue.lookup("dgx_a100", {"nodes": Fraction(128)})
    assert isinstance(found, Hardware)
    assert (found.nodes, found.devices, found.device.name) == (128, 1024, "a100_sxm_80gb")


@pytest.mark.parametrize(
    ("name", "message", "suggestion"),
    [
        ("dgxa100", "no hardware is named `dgxa100`", "did you mean `dgx_a100`?"),
        ("h100-sxm", "no hardware is named `h100-sxm`", "did you mean `h100_sxm`?"),
        (
            "abacus",
            "no hardware is named `abacus`",
            "`node(devices = 8, device = gpu(...), ...)` says a machine of your own",
        ),
        ("nvlink_4", "this is a link, not a machine", "`node(devices = 8, device = h100_sxm, ...)` is a machine"),
    ],
)
def test_what_is_no_machine_gets_help(name: str, message: str, suggestion: str) -> None:
    error = catalogue.lookup(name)
    assert isinstance(error, HardwareError)
    assert (error.message, error.suggestion) == (message, suggestion)
