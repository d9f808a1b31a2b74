"""What `examples/record_paths.py` leaves of an archive, tested without PyTorch: `tests/recorder.rs` runs this."""

import io
import os
import pathlib
import pickle
import sys
import types
import unittest
import zipfile

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

# Pickles of debug records name one function of PyTorch.
stub = types.ModuleType("torch.jit._pickle")
exec("def build_intlist(items): return items", stub.__dict__)
jit, torch = types.ModuleType("torch.jit"), types.ModuleType("torch")
torch.jit, jit._pickle = jit, stub
sys.modules |= {"torch": torch, "torch.jit": jit, "torch.jit._pickle": stub}

from record_paths import IntList, UnknownDebugRecord, short_path, shorten_debug, without_paths  # noqa: E402

STACK = [f"{os.getcwd()}/nets/model.py(5): forward\n", f"{EXAMPLES}/record_probes.py(40): call\n",
         "/usr/lib/python3/site-packages/torch/nn/modules/module.py(1768): _call_impl\n",
         f"{EXAMPLES}/record.py(99): record\n", "/home/me/train.py(3): <module>\n"]


def debug_record():
    """A record as a trace has it: the last line of a text is empty."""
    text = ("", *STACK, "/home/me/train.py")
    lines, length = IntList([1, 2, 3, 4, 5, 0]), sum(map(len, STACK))
    third = sum(map(len, STACK[:2]))
    entries = ((0, ((IntList(), 0, 0), 0, 0), 0), (90, ((lines, 6, 5), 0, length), 1), (95, ((lines, 6, 5), third, length), 2))
    return pickle.dumps(("FORMAT_WITH_STRING_TABLE", text, entries), protocol=2)


class Debug(unittest.TestCase):
    def setUp(self):
        _, self.text, self.entries = pickle.loads(shorten_debug(debug_record()))

    def test_paths_are_short_and_frames_of_the_recorder_are_left_out(self):
        (lines, file, first), _, _ = self.entries[1][1]
        expected = ["nets/model.py(5): forward\n", "torch/nn/modules/module.py(1768): _call_impl\n", "train.py(3): <module>\n", ""]
        self.assertEqual([self.text[line] for line in lines], expected)
        self.assertEqual((self.text[file], first), ("train.py", 5))

    def test_no_line_within_a_text_is_empty(self):
        """PyTorch loads an archive with such a text, and fails when it saves it again."""
        for _, ((lines, *_), _, _), _ in self.entries:
            self.assertTrue(all(self.text[line] for line in lines[:-1]), lines)

    def test_ranges_move_with_their_text(self):
        (lines, *_), start, end = self.entries[1][1]
        self.assertEqual((start, end), (0, sum(len(self.text[line]) for line in lines)))
        self.assertEqual(self.entries[2][1][1], len(self.text[lines[0]]))

    def test_what_was_shortened_stays_as_it_is(self):
        once = shorten_debug(debug_record())
        self.assertEqual(shorten_debug(once), once)

    def test_other_formats_are_refused(self):
        with self.assertRaises(UnknownDebugRecord):
            shorten_debug(pickle.dumps([1, 2], protocol=2))
        with self.assertRaises(UnknownDebugRecord):
            shorten_debug(pickle.dumps(os.getcwd, protocol=2))


class Archive(unittest.TestCase):
    def test_payloads_start_at_multiples_of_64_bytes(self):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("m/code/__torch__.py.debug_pkl", debug_record())
            archive.writestr("m/data/0", b"1234")
            archive.writestr("m/extra/graph.json", b'"File \\"/home/me/a.py\\", line 3"')
            archive.writestr("m/.data/serialization_id", b"0")
        made = without_paths(buffer.getvalue())
        with zipfile.ZipFile(io.BytesIO(made)) as archive:
            names = ["m/code/__torch__.py.debug_pkl", "m/data/0", "m/extra/graph.json"]
            self.assertEqual(archive.namelist(), names)
            self.assertEqual(archive.read("m/extra/graph.json"), b'"File \\"a.py\\", line 3"')
            for entry in archive.infolist():
                at = entry.header_offset
                name, extra = (int.from_bytes(made[at + 26 + 2 * n:at + 28 + 2 * n], "little") for n in (0, 1))
                self.assertEqual((at + 30 + name + extra) % 64, 0, entry.filename)

    def test_paths_outside_are_bare_names(self):
        self.assertEqual(short_path("/opt/site-packages/timm/models/vgg.py"), "timm/models/vgg.py")
        self.assertEqual(short_path("/somewhere/else/model.py"), "model.py")
        self.assertEqual(short_path("model.py"), "model.py")


if __name__ == "__main__":
    unittest.main()
