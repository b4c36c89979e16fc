"""Reads TensorBoard's event files without TensorBoard."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path


def read_events(folder: Path) -> dict[str, dict[int, float]]:
    """Tag -> step -> value, of all event files in their order, as TensorBoard reads them.

    A record is its length (8 bytes), a checksum (4), the event and another checksum (4).
    """
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    found: dict[str, dict[int, float]] = defaultdict(dict)
    for file in sorted(folder.rglob("events.*")):
        left = file.read_bytes()
        while left:
            (size,) = struct.unpack("<Q", left[:8])
            event = Event.FromString(left[12 : 12 + size])
            left = left[16 + size :]
            if event.session_log.status == SessionLog.START:
                for steps in found.values():
                    for step in [step for step in steps if step >= event.step]:
                        del steps[step]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found[value.tag][event.step] = value.simple_value
    return dict(found)
