"""Archives of PyTorch without the paths of the machine that wrote them.

A trace notes for every node the Python stack that made it, with absolute file names. That tells a reader of the archive
about the machine and makes two recordings of one model differ. `without_paths` shortens the names and leaves out the frames
of the recorder; PyTorch loads the result, names the lines in its errors, and saves it again.
"""

import io
import os
import pathlib
import pickle
import re
import zipfile

RECORDER = {str(pathlib.Path(__file__).with_name(name).resolve()) for name in ("record.py", "record_probes.py")}
"""Files whose stack frames belong to the recording, not to the model."""

FRAME = re.compile(r"(?P<path>.+)(?P<rest>\(\d+\): \S+\n?)")
"""A line of a stack: `model.py(12): forward`."""


class UnknownDebugRecord(Exception):
    """A debug record has an unknown format."""


def short_path(path):
    """Shorten a source path for publication: relative to the package folder or the working directory, or the bare name."""
    for marker in ("site-packages/", "dist-packages/"):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    if not os.path.isabs(path):
        return path
    relative = os.path.relpath(path)
    return os.path.basename(path) if relative.startswith("..") else relative


def without_paths(archive):
    """Return the bytes of a .pt or .pt2 archive with short paths, in PyTorch's container layout."""
    out = _Stream()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            if entry.filename.endswith("/.data/serialization_id"):
                continue  # a sum over the records as they were
            info = zipfile.ZipInfo(entry.filename)
            info.compress_type = entry.compress_type
            # Payloads are aligned to 64 bytes, so that a reader can map them.
            gap = -(out.length + 30 + len(entry.filename.encode()) + 4) % 64
            info.extra = b"FB" + gap.to_bytes(2, "little") + b"Z" * gap
            new.writestr(info, _shortened(entry.filename, old.read(entry)))
            info.extra = b""
    return out.getvalue()


def _shortened(name, payload):
    if name.endswith(".debug_pkl"):
        return shorten_debug(payload)
    if name.endswith(".json"):
        return re.sub(rb'(File \\")([^"\\]+)(\\")', lambda m: m[1] + short_path(m[2].decode()).encode() + m[3], payload)
    return payload


class _Stream(io.RawIOBase):
    """A sink that can't seek: `zipfile` then writes sizes after the payloads, as PyTorch does."""

    def __init__(self):
        self.parts, self.length = [], 0

    def writable(self):
        return True

    def write(self, data):
        self.parts.append(bytes(data))
        self.length += len(data)
        return len(data)

    def getvalue(self):
        return b"".join(self.parts)


class IntList(list):
    """A list of integers, which PyTorch pickles by its own function."""

    def __reduce__(self):
        from torch.jit import _pickle

        return _pickle.build_intlist, (list(self),)


class DebugUnpickler(pickle.Unpickler):
    """An unpickler for debug records only."""

    def find_class(self, module, name):
        if (module, name) == ("torch.jit._pickle", "build_intlist"):
            return IntList
        raise UnknownDebugRecord(f"unexpected {module}.{name} in a debug record")


def shorten_debug(payload):
    """A `.debug_pkl`: a table of strings (source lines, stack lines, file names) and ranges that refer to it."""
    records = DebugUnpickler(io.BytesIO(payload)).load()
    if not (isinstance(records, tuple) and records and records[0] == "FORMAT_WITH_STRING_TABLE"):
        raise UnknownDebugRecord("a debug record in a format unknown to this script")
    old, new = records[1], tuple(map(_shorten_line, records[1]))

    def rewrite(item):
        if not isinstance(item, tuple):
            return item
        if len(item) == 3 and isinstance(item[0], tuple) and item[0] and isinstance(item[0][0], IntList):
            return _moved(item, old, new)
        return tuple(map(rewrite, item))

    return pickle.dumps((records[0], new) + tuple(map(rewrite, records[2:])), protocol=2)


def _shorten_line(text):
    match = FRAME.fullmatch(text)
    if match and os.path.abspath(match["path"]) in RECORDER:
        return ""
    if match:
        return short_path(match["path"]) + match["rest"]
    return short_path(text) if text.startswith("/") and "\n" not in text else text


def _moved(source_range, old, new):
    """Adjust a source range to shortened lines. PyTorch cannot read a text in which a line became empty: such lines are
    removed."""
    (lines, file, first_line), start, end = source_range

    def move(offset):
        moved = 0
        for line in lines:
            if offset < len(old[line]):
                return moved + min(offset, len(new[line]))
            offset -= len(old[line])
            moved += len(new[line])
        return moved + offset

    kept = IntList(line for line in lines if new[line] or not old[line])
    return (kept, file, first_line), move(start), move(end)
