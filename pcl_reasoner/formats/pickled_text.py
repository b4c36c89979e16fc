"""One text out of a pickle, without unpickling: the private tests of LiveCodeBench.

They are a JSON text, pickled, compressed by zlib, and written in base64. The pickle of "[]":

    PROTO 4, FRAME 6, SHORT_BINUNICODE '[]', MEMOIZE, STOP

Unpickling runs what the pickle says, so a changed file could run any program. Here the opcodes are
only listed. Anything but one text and what stands around it in every pickle of a text is refused.

Source: LiveCodeBench, lcb_runner/benchmarks/code_generation.py, which unpickles.
"""

import base64
import binascii
import pickletools
import zlib

from pcl_reasoner.formats.records import Malformed, Reason

_BEFORE = ("PROTO", "FRAME")
"""Optional, in this order: protocols 0 and 1 have no PROTO, and short pickles have no FRAME."""
_TEXT = {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"}
"""UNICODE is the text of protocol 0. It is as harmless as the others, so it is read, too."""
_MEMO = {"MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"}
"""Optional: the pickler numbers the text, as if a later object could refer to it."""


def unpack(packed: str, max_bytes: int) -> str:
    """Return the text of base64 of zlib of a pickle of one text.

    Args:
        packed: The base64 text.
        max_bytes: Largest size of the pickle. Decompression stops there.

    Raises:
        Malformed: The text is not base64, the compressed bytes are cut off or followed by others,
            the pickle is larger than ``max_bytes``, or it holds anything but one text.
    """
    try:
        compressed = base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(Reason.MALFORMED_TESTS, f"not base64: {error}") from error
    return text_of_pickle(_decompressed(compressed, max_bytes))


def _decompressed(data: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        # One byte more than allowed tells a pickle that fits from one that does not.
        found = stream.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise Malformed(Reason.MALFORMED_TESTS, f"not zlib: {error}") from error
    if len(found) > max_bytes:
        raise Malformed(Reason.TESTS_TOO_LARGE, f"more than {max_bytes} bytes after decompression")
    if not stream.eof or stream.unused_data:
        wrong = "other bytes follow" if stream.unused_data else "the end is missing"
        raise Malformed(Reason.MALFORMED_TESTS, f"compressed tests: {wrong}")
    return found


def text_of_pickle(data: bytes) -> str:
    """Return the text of a pickle that holds one text and nothing else.

    Args:
        data: The pickle, of any protocol from 0 to 5.

    Raises:
        Malformed: The pickle has another opcode, which the detail names, or is cut off.
    """
    allowed, text = list(_BEFORE), None
    try:
        for opcode, value, position in pickletools.genops(data):
            if opcode.name == "STOP" and text is not None:
                return _to_the_end(text, data, position)
            if text is None and opcode.name in allowed:
                del allowed[: allowed.index(opcode.name) + 1]
            elif text is None and opcode.name in _TEXT:
                text, allowed = str(value), list(_MEMO)
            elif text is not None and opcode.name in allowed:
                allowed = []
            else:
                raise _refused(opcode.name, position or 0)
    except (ValueError, OverflowError, MemoryError) as error:
        raise Malformed(Reason.MALFORMED_TESTS, f"not a complete pickle: {error}") from error
    raise Malformed(Reason.MALFORMED_TESTS, "not a complete pickle: it has no STOP")


def _refused(opcode: str, position: int) -> Malformed:
    return Malformed(
        Reason.MALFORMED_TESTS,
        f"pickle with opcode {opcode} at byte {position}, expected one text and nothing else",
    )


def _to_the_end(text: str, data: bytes, stop: int | None) -> str:
    """Return the text if STOP is the last byte."""
    if stop is None or stop + 1 != len(data):
        raise Malformed(Reason.MALFORMED_TESTS, "pickle: bytes after STOP, expected none")
    return text
