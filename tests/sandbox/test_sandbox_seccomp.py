"""The filter's numbers are the kernel's, and the filter decides as it says."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from pcl_reasoner.sandbox.seccomp import ALLOW, ERROR, KILL, MACHINES, Machine, filter_program

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NOT_PERMITTED, NO_SUCH_CALL = ERROR | 1, ERROR | 38


@pytest.mark.parametrize("name", MACHINES)
def test_the_numbers_are_those_of_the_kernels_headers(name: str) -> None:
    if not HEADERS[name].exists():
        pytest.skip(f"{HEADERS[name]} is not installed (apt-get install linux-libc-dev)")
    text = HEADERS[name].read_text()
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text))
    machine = MACHINES[name]
    ours = {"clone": machine.clone, "clone3": machine.clone3, "socket": machine.socket}
    for call, number in (machine.denied | ours).items():
        assert int(numbers.get(call, -1)) == number, call
    assert len(machine.denied) >= 40


def run(machine: Machine, call: int, argument: int = 0, audit: int | None = None) -> int:
    """What the program answers: an interpreter of the instructions that it uses."""
    data = struct.pack("<IIQQ", call, machine.audit if audit is None else audit, 0, argument)
    code = filter_program(machine)
    program = [struct.unpack_from("HBBI", code, place) for place in range(0, len(code), 8)]
    at, held = 0, 0
    while True:
        operation, if_true, if_false, value = program[at]
        at += 1
        if operation == 0x06:
            return value
        if operation == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        else:
            right = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[operation]
            at += if_true if right else if_false


@pytest.mark.parametrize("name", MACHINES)
def test_it_decides_as_it_says(name: str) -> None:
    machine = MACHINES[name]
    assert run(machine, 0) == run(machine, 63) == ALLOW
    assert {run(machine, number) for number in machine.denied.values()} == {NOT_PERMITTED}
    assert run(machine, machine.clone3) == NO_SUCH_CALL
    assert run(machine, machine.clone, 17) == ALLOW
    for flag in (0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x02000000, 0x80):
        assert run(machine, machine.clone, flag | 17) == NOT_PERMITTED
    families = {family: run(machine, machine.socket, family) for family in range(46)}
    assert {family for family, answer in families.items() if answer == ALLOW} == {1, 2, 10}
    assert set(families.values()) == {ALLOW, NOT_PERMITTED}
    other = next(one for one in MACHINES.values() if one is not machine)
    assert run(machine, 0, audit=other.audit) == KILL
    assert run(machine, 0x40000000) == (NO_SUCH_CALL if machine.x32 else ALLOW)
