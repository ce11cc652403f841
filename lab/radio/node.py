"""YAML mappings that remember where they stood, and take their keys one by one."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import yaml

from .uuids import normalized

T = TypeVar("T")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FleetError(Exception):
    """What is wrong with a fleet file, and where."""


def load(path: str) -> Mapping:
    """The top mapping of a YAML file. Throws FleetError."""
    try:
        with open(path, encoding="utf-8") as file:
            node = yaml.compose(file, Loader=_Loader)
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FleetError(f"{path}: {error}") from error
    return Mapping(node, path, "the fleet")


class Mapping:
    """A mapping whose keys are taken by name and kind; `finish` refuses those that nobody took.

    Scalars are read as written, so that 0499 and 1809 stay text and need no quotes.
    """

    def __init__(self, node: Any, path: str, what: str) -> None:
        self._path = path
        self._what = what
        self._line = node.start_mark.line + 1 if node is not None else 1
        self._nodes: dict[str, Any] = {}
        self._taken: set[str] = set()
        self._lines: dict[str, int] = {}
        if node is None:
            return
        if not isinstance(node, yaml.MappingNode):
            raise FleetError(f"{path}:{self._line}: {what} must be a mapping of keys to values")
        for key, value in node.value:
            name = str(key.value)
            if name in self._nodes:
                raise FleetError(f"{path}:{key.start_mark.line + 1}: {name} stands here twice")
            self._nodes[name] = value
            self._lines[name] = key.start_mark.line + 1

    def error(self, key: str, message: str) -> FleetError:
        """An error about a key of this mapping."""
        return FleetError(f"{self._path}:{self._lines.get(key, self._line)}: {key}: {message}")

    def finish(self) -> None:
        """Throws FleetError for the first key that is not known."""
        for key in self._nodes:
            if key not in self._taken:
                raise self.error(key, f"unknown key in {self._what}")

    def present(self, *keys: str) -> list[str]:
        """Those of the keys that are given."""
        return [key for key in keys if key in self._nodes]

    def required(self, key: str, value: T | None) -> T:
        """The value, or an error that the key is missing."""
        if value is None:
            raise self.error(key, f"is missing in {self._what}")
        return value

    def _take(self, key: str) -> Any:
        self._taken.add(key)
        node = self._nodes.get(key)
        if isinstance(node, yaml.ScalarNode) and node.style is None and node.value in ("", "~", "null"):
            return None
        return node

    def text(self, key: str, default: str | None) -> str | None:
        """A scalar as text."""
        node = self._take(key)
        if node is None:
            return default
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(key, "must be a single value")
        return str(node.value)

    def matching(self, key: str, pattern: re.Pattern[str], what: str) -> str | None:
        """A text of a given form."""
        text = self.text(key, None)
        if text is not None and not pattern.fullmatch(text):
            raise self.error(key, f"{text!r} is not {what}")
        return text

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some words; the first is the default."""
        text = self.text(key, choices[0]) or choices[0]
        if text not in choices:
            raise self.error(key, f"{text!r} is none of {', '.join(choices)}")
        return text

    def integer(self, key: str, default: Any, low: int, high: int) -> Any:
        """A whole number within bounds."""
        text = self.text(key, None)
        if text is None:
            return default
        try:
            number = int(text, 10)
        except ValueError as error:
            raise self.error(key, f"{text!r} is not a whole number") from error
        if not low <= number <= high:
            raise self.error(key, f"{number} is not between {low} and {high}")
        return number

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        text = self.text(key, None)
        if text is None:
            return default
        if text not in ("true", "false"):
            raise self.error(key, f"{text!r} is neither true nor false")
        return text == "true"

    def hexadecimal(self, key: str, default: bytes, length: int | None) -> bytes:
        """Bytes in hex digits."""
        text = self.text(key, None)
        return default if text is None else self._bytes(key, text, length)

    def _bytes(self, key: str, text: str, length: int | None) -> bytes:
        try:
            value = bytes.fromhex(text)
        except ValueError as error:
            raise self.error(key, f"{text!r} is not hex digits in pairs") from error
        if length is not None and len(value) != length:
            raise self.error(key, f"{text!r} must be {length} bytes")
        return value

    def uuid(self, key: str) -> str | None:
        """A UUID, normalized."""
        text = self.text(key, None)
        return None if text is None else self._uuid(key, text)

    def _uuid(self, key: str, text: str) -> str:
        uuid = normalized(text)
        if uuid is None:
            raise self.error(key, f"{text!r} is not a UUID of 4 hex digits or the dashed form")
        return uuid

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of scalars as text."""
        node = self._take(key)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(e, yaml.ScalarNode) for e in node.value):
            raise self.error(key, "must be a list")
        return tuple(str(entry.value) for entry in node.value)

    def uuids(self, key: str) -> tuple[str, ...]:
        """A list of UUIDs, normalized."""
        return tuple(self._uuid(key, text) for text in self.texts(key))

    def mappings(self, key: str) -> list[Mapping]:
        """A list of mappings."""
        node = self._take(key)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(key, "must be a list")
        return [Mapping(entry, self._path, f"an entry of {key}") for entry in node.value]

    def bytes_by_key(self, key: str) -> dict[str, bytes]:
        """A mapping of texts to bytes in hex."""
        node = self._take(key)
        if node is None:
            return {}
        inner = Mapping(node, self._path, key)
        return {name: inner.hexadecimal(name, b"", None) for name in inner._nodes}

    def uuid_bytes(self, key: str) -> dict[str, bytes]:
        """A mapping of UUIDs to bytes in hex."""
        return {self._uuid(key, name): value for name, value in self.bytes_by_key(key).items()}
