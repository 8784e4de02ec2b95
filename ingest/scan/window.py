"""A sliding window over a stream of byte chunks."""

from __future__ import annotations

from collections.abc import Iterable


class Window:
    """The bytes not yet consumed, and where they stand in the stream.

    Attributes:
        text: what is held.
        offset: position of `text[0]` in the stream.
        is_last: nothing follows what is held.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self.text = b""
        self.offset = 0
        self.is_last = False

    def fill(self, size: int) -> None:
        """Hold at least `size` bytes, as far as the stream has them."""
        parts = [self.text]
        held = len(self.text)
        while held < size and not self.is_last:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.is_last = True
                break
            parts.append(chunk)
            held += len(chunk)
        if len(parts) > 1:
            self.text = b"".join(parts)

    def advance(self, n: int) -> None:
        """Drop the first `n` bytes."""
        if n:
            self.text = self.text[n:]
            self.offset += n
