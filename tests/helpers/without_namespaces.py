"""Runs a command in which no process can make a namespace, as in many containers.

    python without_namespaces.py pclr-ms doctor

A filter of system calls answers unshare, clone3 and clone with a new namespace by an error. It
holds for everything that the command starts.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import replace

from pcl_reasoner.sandbox.seccomp import filter_program, machine

SET_SECCOMP, SET_NO_NEW_PRIVILEGES, FILTER = 22, 38, 2


class Program(ctypes.Structure):
    """The kernel's ``struct sock_fprog``."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def forbid_namespaces() -> None:
    """Install the filter in this process for ever."""
    target = machine()
    assert target is not None, "no table of system calls for this machine"
    code = filter_program(replace(target, denied={"unshare": target.denied["unshare"]}))
    program = Program(len(code) // 8, code)
    library = ctypes.CDLL(None, use_errno=True)
    for call in (
        (SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        (SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0),
    ):
        assert library.prctl(*call) == 0, os.strerror(ctypes.get_errno())


if __name__ == "__main__":
    forbid_namespaces()
    os.execvp(sys.argv[1], sys.argv[1:])
