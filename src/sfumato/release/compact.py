"""Read Thrift's compact protocol, which Parquet footers and page headers use, up to a limit of values."""

from __future__ import annotations

from typing import Any

_TRUE, _FALSE, _BYTE, _I16, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 4, 6, 7, 8, 9, 12
_DEPTH = 12  # structures in structures; Parquet has fewer


class Compact:
    """A reader of bytes. What our writer never makes is refused, so that no two readers can disagree on it."""

    def __init__(self, data: bytes, *, most: int) -> None:
        self._data = data
        self._left = most  # values that may still be read
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields by number."""
        if depth > _DEPTH:
            raise ValueError("structures are nested too deeply")
        fields: dict[int, Any] = {}
        last = 0
        while head := self._byte():
            number = last + (head >> 4) if head >> 4 else self._integer()
            if not last < number < 1 << 15:
                raise ValueError("fields are out of order")
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
            self._count()
            last = number
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if _I16 <= kind <= _I64:
            return self._integer()
        if kind == _BINARY:
            return self._take(self._unsigned())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _LIST:
            return self._list(depth)
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BYTE:
            return self._byte()
        raise ValueError("a value is of a kind that Parquet does not use")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        if size == 15:
            size = self._unsigned()
        if kind in (_TRUE, _FALSE):
            kind = _BYTE  # in a list, each takes a byte
        self._count(size)  # before the first is read, because pyarrow allocates memory for all of them at once
        return [self._list(depth + 1) if kind == _LIST else self._value(kind, depth) for _ in range(size)]

    def _integer(self) -> int:
        folded = self._unsigned()
        return (folded >> 1) ^ -(folded & 1)

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number is too long")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, length: int) -> bytes:
        if length > len(self._data) - self.at:
            raise ValueError("it ends too early")
        self.at += length
        return self._data[self.at - length : self.at]

    def _count(self, values: int = 1) -> None:
        self._left -= values
        if self._left < 0:
            raise ValueError("it holds more values than a release has use for")
