"""The forward pass of an embedder on a CPU: windows of token ids in, unit vectors out.

    torch       float32; always available
    openvino    float32, about three times as fast, and bfloat16, about five times as fast, if
                the processor supports it; `pip install 'pclr-ms[openvino]'`

The cosines of the two float32 encoders differ by less than 1e-6. A text's cosines also depend on
which other texts share its batch, again by less than 1e-6. bfloat16 changed no cosine of 700
contest problems by more than 0.003.
"""

import importlib.util
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.core.errors import StageError, require

Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Forward = Callable[[Ids, Ids], Vectors]
"""Token ids, attention mask: int64 [windows, tokens] -> unit vectors [windows, dimension]."""

AUTO, TORCH = "auto", "torch"
OPENVINO_FLOAT32, OPENVINO_BFLOAT16 = "openvino_float32", "openvino_bfloat16"


def chosen_encoder(wanted: str) -> str:
    """Return the encoder to use on this machine for a configured value.

    Args:
        wanted: auto, torch, openvino_float32 or openvino_bfloat16. auto: the fastest available.

    Raises:
        StageError: OpenVINO is not installed, or the processor has no bfloat16.
    """
    if wanted == TORCH or (wanted == AUTO and importlib.util.find_spec("openvino") is None):
        return TORCH
    has_bfloat16 = "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if wanted == AUTO:
        return OPENVINO_BFLOAT16 if has_bfloat16 else OPENVINO_FLOAT32
    if wanted == OPENVINO_BFLOAT16 and not has_bfloat16:
        raise StageError(
            f"contamination: encoder {wanted}: this processor has no bfloat16, where it would be "
            f"slower than float32. Set encoder to auto or {OPENVINO_FLOAT32}."
        )
    return wanted


def forwards(encoder: str, model: Any, threads: int) -> tuple[Forward, Forward | None]:
    """Return (forward pass in float32, faster and less exact forward pass or None).

    Args:
        encoder: As returned by ``chosen_encoder``.
        model: A SentenceTransformer in float32.
        threads: CPU threads.
    """
    if encoder == TORCH:
        return _torch_forward(model, threads), None
    exact = _openvino_forward(model, threads, "f32")
    if encoder == OPENVINO_FLOAT32:
        return exact, None
    return exact, _openvino_forward(model, threads, "bf16")


def _torch_forward(model: Any, threads: int) -> Forward:
    def forward(ids: Ids, mask: Ids) -> Vectors:
        import torch

        with _threads(threads), torch.inference_mode():
            return _unit_vectors(model, torch.from_numpy(ids), torch.from_numpy(mask)).numpy()

    return forward


def _unit_vectors(model: Any, ids: Any, mask: Any) -> Any:
    """Compute the sentence embedding of each window, normalised to length 1.

    All tensors are torch tensors: ids and mask [windows, tokens], the result [windows, dimension].
    """
    import torch

    features = {"input_ids": ids, "attention_mask": mask}
    return torch.nn.functional.normalize(model(features)["sentence_embedding"], dim=1)


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    """Set torch's number of threads, and restore it afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _without_telemetry() -> Iterator[None]:
    """Block OpenVINO's telemetry package, with which OpenVINO would send usage statistics."""
    absent = object()
    before: Any = sys.modules.get("openvino_telemetry", absent)
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if before is absent:
            del sys.modules["openvino_telemetry"]
        else:
            sys.modules["openvino_telemetry"] = before


@cache
def _core() -> Any:
    with _without_telemetry():
        return require("openvino", "openvino").Core()


def _openvino_forward(model: Any, threads: int, precision: str) -> Forward:
    """The forward pass with OpenVINO at one precision; the first call compiles the model."""
    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}

    @cache
    def compiled() -> Any:
        return _core().compile_model(_converted(model), "CPU", options)

    def forward(ids: Ids, mask: Ids) -> Vectors:
        # Copy, because the next call overwrites the result's memory.
        return compiled()([ids, mask])[0].copy()

    return forward


def _converted(model: Any) -> Any:
    """OpenVINO's form of the model, traced from torch; takes any number of windows and tokens."""
    import torch

    class Unit(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return _unit_vectors(self.model, ids, mask)

    ones = torch.ones(2, 16, dtype=torch.long)
    with _without_telemetry(), _quiet(), torch.inference_mode():
        return require("openvino", "openvino").convert_model(Unit(), example_input=(ones, ones))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence tracing's warnings that some shapes become constants; these shapes never change."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(level)
