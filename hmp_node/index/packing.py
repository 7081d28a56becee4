"""Vectors as they are stored: a float32 scale, little-endian, and an int8 a dimension. Used in the worker only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALE = 4  # bytes before the numbers
_STEPS = 127.0


class Unusable(Exception):
    """No vectors can be made of it, and why."""


class NoDirection(Unusable):
    """One of the vectors is all zeros, or not of numbers; others beside it may be good."""


def normal(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Rows of length one. Raises `NoDirection` for rows of zeros or of what is no number."""
    with np.errstate(all="ignore"):
        wide = vectors.astype(np.float64)
        lengths = np.linalg.norm(wide, axis=1)
        # What is too small or too large to be divided by its length is no direction either.
        if not np.isfinite(wide).all() or not np.isfinite(lengths).all():
            raise NoDirection("a number of a vector is not finite")
        if (lengths < 1e-12).any():
            raise NoDirection("a vector is all zeros")
        made: NDArray[np.float32] = (wide / lengths[:, None]).astype(np.float32)
    return made


def pack(vectors: NDArray[np.float32]) -> list[bytes]:
    """Rows of length one, packed."""
    scales = (np.abs(vectors).max(axis=1) / _STEPS).astype("<f4")
    numbers = np.rint(vectors / scales[:, None]).astype(np.int8)
    return [scale.tobytes() + row.tobytes() for scale, row in zip(scales, numbers, strict=True)]


def unpack(packed: Sequence[bytes], dimension: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """(scales, rows of int8) of packed vectors. Raises `Unusable` for one of another length."""
    if any(len(one) != SCALE + dimension for one in packed):
        raise Unusable(f"a stored vector has not {dimension} dimensions")
    raw = np.frombuffer(b"".join(packed), dtype=np.uint8).reshape(len(packed), SCALE + dimension)
    scales = np.ascontiguousarray(raw[:, :SCALE]).view("<f4")[:, 0]
    return scales.astype(np.float32), np.ascontiguousarray(raw[:, SCALE:]).view(np.int8)


def of_answer(body: bytes, *, count: int, dimension: int | None) -> NDArray[np.float32]:
    """The vectors in an endpoint's answer, in the order of the texts. Raises `Unusable` and says what is wrong."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unusable("it is not JSON") from error
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        raise Unusable("there is no list of embeddings in it")
    if len(data) != count:
        raise Unusable(f"it holds {len(data)} embeddings for {count} texts")
    rows: list[Any] = [None] * count
    for place, item in enumerate(data):
        at = item.get("index", place) if isinstance(item, dict) else None
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < count or rows[at] is not None:
            raise Unusable("its embeddings are not numbered as the texts are")
        rows[at] = item.get("embedding")
    return normal(_matrix(rows, dimension))


def _matrix(rows: Sequence[Any], dimension: int | None) -> NDArray[np.float64]:
    lengths = {len(row) if isinstance(row, list) else -1 for row in rows}
    if -1 in lengths or 0 in lengths:
        raise Unusable("an embedding in it is no list of numbers")
    if len(lengths) > 1 or (dimension is not None and lengths != {dimension}):
        wanted = "" if dimension is None else f", not {dimension}"
        raise Unusable(f"its embeddings have {', '.join(map(str, sorted(lengths)))} dimensions{wanted}")
    if any(isinstance(number, bool) or not isinstance(number, int | float) for row in rows for number in row):
        raise Unusable("an embedding in it is no list of numbers")
    try:
        return np.array(rows, dtype=np.float64)
    except OverflowError as error:
        raise NoDirection("a number of a vector is not finite") from error
