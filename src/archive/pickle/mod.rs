//! A restricted unpickler. It reads the opcodes that PyTorch writes, and calls nothing but a short list of names.

use std::collections::HashMap;
use std::sync::Arc;

use super::TensorRecord;
use crate::budget::Budget;
use crate::error::{Error, ErrorContext, Result};

mod globals;
mod resolve;
mod value;

pub use value::{Pickled, PickledDict, PickledList, PickledObject};

/// Reads a pickle of protocol 2 to 5. Storages become references to the records `folder/key`.
pub fn unpickle(bytes: &[u8], folder: &str, budget: &Budget) -> Result<Pickled> {
    let mut unpickler = Unpickler {
        input: bytes,
        position: 0,
        folder,
        budget,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    let root = unpickler
        .run()
        .at(|| format!("byte {}", unpickler.position))?;
    resolve::resolve(unpickler.nodes, root, budget)
}

/// Index of a node.
type NodeId = usize;

/// A value under construction. The memo and the stack refer to nodes by index, so a container can still grow after other
/// nodes refer to it.
enum PickleNode {
    /// A value that contains no others.
    Leaf(Pickled),
    /// A tuple.
    Tuple(Vec<NodeId>),
    /// A list with its type tag.
    List(Vec<NodeId>, Option<Arc<str>>),
    /// A dict with its type tag.
    Dict(Vec<(NodeId, NodeId)>, Option<Arc<str>>),
    /// An instance: its class, and names and values of attributes.
    Object(Arc<str>, Vec<(NodeId, NodeId)>),
    /// A name such as `torch.FloatStorage`, which is not a value by itself.
    Global(Arc<str>),
    /// A storage, as a tensor record over all of it.
    Storage(Box<TensorRecord>),
}

/// A machine that executes the opcodes of a pickle.
struct Unpickler<'a> {
    input: &'a [u8],
    /// Offset of the next byte.
    position: usize,
    /// Folder of the records with the storages.
    folder: &'a str,
    /// Each value is charged to it, and each copy of a part of a value.
    budget: &'a Budget,
    /// All values so far.
    nodes: Vec<PickleNode>,
    stack: Vec<NodeId>,
    /// Heights that the stack had at the marks that are still open.
    marks: Vec<usize>,
    /// Values that the pickle refers to again, by the number of the memo entry.
    memo: HashMap<usize, NodeId>,
}

impl Unpickler<'_> {
    /// Executes all opcodes. Returns the value on top of the stack at the end.
    fn run(&mut self) -> Result<NodeId> {
        loop {
            match self.u8()? {
                b'.' => return self.pop(),
                opcode => self.execute(opcode)?,
            }
        }
    }

    /// Executes an opcode.
    fn execute(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            0x80 => self.protocol(),
            // A frame holds only the number of bytes that follow.
            0x95 => self.take(8).map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'N' => self.leaf(Pickled::None),
            0x88 => self.leaf(Pickled::Bool(true)),
            0x89 => self.leaf(Pickled::Bool(false)),
            b'J' => self.integer(4),
            b'K' => self.unsigned(1),
            b'M' => self.unsigned(2),
            0x8a => self.long(),
            b'G' => self.float(),
            0x8c => self.string(1),
            b'X' => self.string(4),
            0x8d => self.string(8),
            b')' => self.push(PickleNode::Tuple(Vec::new())),
            0x85..=0x87 => self.short_tuple(usize::from(opcode - 0x84)),
            b't' => self.tuple(),
            b']' => self.push(PickleNode::List(Vec::new(), None)),
            b'a' => self.append(),
            b'e' => self.appends(),
            b'}' => self.push(PickleNode::Dict(Vec::new(), None)),
            b's' => self.set_item(),
            b'u' => self.set_items(),
            b'q' => self.put(1),
            b'r' => self.put(4),
            0x94 => self.memoize(),
            b'h' => self.get(1),
            b'j' => self.get(4),
            b'c' => self.global(),
            0x93 => self.stack_global(),
            b'Q' => self.persistent(),
            b'R' => self.reduce(),
            0x81 => self.new_object(),
            b'b' => self.build(),
            _ => Err(Error::unsupported(format!("pickle opcode {opcode:#04x}"))),
        }
    }

    fn protocol(&mut self) -> Result<()> {
        match self.u8()? {
            2..=5 => Ok(()),
            version => Err(Error::unsupported(format!("pickle protocol {version}"))),
        }
    }

    /// Reads a number of bytes.
    fn take(&mut self, length: usize) -> Result<&[u8]> {
        let end = self.position.checked_add(length);
        let bytes = end.and_then(|end| self.input.get(self.position..end));
        let bytes = bytes.ok_or_else(|| Error::format("the pickle ends early"))?;
        self.position += length;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8> {
        self.take(1)
            .map(|bytes| bytes.first().copied().unwrap_or(0))
    }

    /// Reads a signed little-endian number of `width` bytes. Fails for more than eight.
    fn signed_number(&mut self, width: usize) -> Result<i64> {
        let bytes = self.take(width)?;
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut extended = [if is_negative { 0xff } else { 0 }; 8];
        let low_bytes = extended.get_mut(..width);
        low_bytes
            .ok_or_else(|| Error::unsupported("an integer of more than 64 bits"))?
            .copy_from_slice(bytes);
        Ok(i64::from_le_bytes(extended))
    }

    /// Reads an unsigned little-endian number of `width` bytes.
    fn unsigned_number(&mut self, width: usize) -> Result<usize> {
        let high_to_low = self.take(width)?.iter().rev();
        let value = high_to_low.fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).map_err(|_| Error::format("a length exceeds the address space"))
    }

    fn integer(&mut self, width: usize) -> Result<()> {
        let value = self.signed_number(width)?;
        self.leaf(Pickled::Int(value))
    }

    fn unsigned(&mut self, width: usize) -> Result<()> {
        let value = self.unsigned_number(width)?;
        self.leaf(Pickled::Int(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn long(&mut self) -> Result<()> {
        let width = self.unsigned_number(1)?;
        self.integer(width)
    }

    fn float(&mut self) -> Result<()> {
        let bytes = self.take(8)?.try_into().unwrap_or_default();
        self.leaf(Pickled::Float(f64::from_be_bytes(bytes)))
    }

    /// Reads a string after its length, a number of `width` bytes.
    fn string(&mut self, width: usize) -> Result<()> {
        let length = self.unsigned_number(width)?;
        let text = std::str::from_utf8(self.take(length)?);
        let text = text
            .map_err(|_| Error::format("a string is not UTF-8"))?
            .into();
        self.leaf(Pickled::Str(text))
    }

    /// Reads the text up to the end of the line.
    fn line(&mut self) -> Result<String> {
        let rest = self.input.get(self.position..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n');
        let length = length.ok_or_else(|| Error::format("the pickle ends early"))?;
        let line = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.position += 1;
        Ok(line)
    }

    /// Adds a value and pushes it.
    fn push(&mut self, node: PickleNode) -> Result<()> {
        self.budget.charge_values(1)?;
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        Ok(())
    }

    fn leaf(&mut self, value: Pickled) -> Result<()> {
        self.push(PickleNode::Leaf(value))
    }

    /// Pops the topmost value. Values below the last mark cannot be popped.
    fn pop(&mut self) -> Result<NodeId> {
        if self.stack.len() <= self.marks.last().copied().unwrap_or(0) {
            return Err(underflow());
        }
        self.stack.pop().ok_or_else(underflow)
    }

    fn top(&self) -> Result<NodeId> {
        self.stack.last().copied().ok_or_else(underflow)
    }

    /// Pops all values above the last mark.
    fn pop_mark(&mut self) -> Result<Vec<NodeId>> {
        let mark = self.marks.pop().ok_or_else(underflow)?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn short_tuple(&mut self, length: usize) -> Result<()> {
        let mut items = Vec::with_capacity(length);
        for _ in 0..length {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(PickleNode::Tuple(items))
    }

    fn tuple(&mut self) -> Result<()> {
        let items = self.pop_mark()?;
        self.push(PickleNode::Tuple(items))
    }

    fn append(&mut self) -> Result<()> {
        let item = self.pop()?;
        self.extend_list(vec![item])
    }

    fn appends(&mut self) -> Result<()> {
        let items = self.pop_mark()?;
        self.extend_list(items)
    }

    /// Appends elements to the list on top of the stack.
    fn extend_list(&mut self, elements: Vec<NodeId>) -> Result<()> {
        let list = self.top()?;
        match &mut self.nodes[list] {
            PickleNode::List(items, _) => items.extend(elements),
            _ => {
                return Err(Error::format(
                    "elements are appended to something that is not a list",
                ));
            }
        }
        Ok(())
    }

    fn set_item(&mut self) -> Result<()> {
        let value = self.pop()?;
        let key = self.pop()?;
        self.extend_dict(vec![key, value])
    }

    fn set_items(&mut self) -> Result<()> {
        let items = self.pop_mark()?;
        self.extend_dict(items)
    }

    /// Adds entries to the dict on top of the stack. Keys and values alternate.
    fn extend_dict(&mut self, keys_and_values: Vec<NodeId>) -> Result<()> {
        let dict = self.top()?;
        let (pairs, rest) = keys_and_values.as_chunks::<2>();
        match &mut self.nodes[dict] {
            PickleNode::Dict(entries, _) if rest.is_empty() => {
                entries.extend(pairs.iter().map(|[key, value]| (*key, *value)));
            }
            _ => {
                return Err(Error::format(
                    "items are set on something that is not a dict",
                ));
            }
        }
        Ok(())
    }

    /// Stores the value on top of the stack in the memo.
    fn put(&mut self, width: usize) -> Result<()> {
        let slot = self.unsigned_number(width)?;
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    /// Stores the value on top of the stack in the next entry of the memo.
    fn memoize(&mut self) -> Result<()> {
        let top = self.top()?;
        self.memo.insert(self.memo.len(), top);
        Ok(())
    }

    /// Pushes a value of the memo.
    fn get(&mut self, width: usize) -> Result<()> {
        let slot = self.unsigned_number(width)?;
        let id = self.memo.get(&slot);
        let unwritten = || Error::format(format!("memo entry {slot} is read before it is written"));
        let id = id.ok_or_else(unwritten)?;
        self.budget.charge_values(1)?;
        self.stack.push(*id);
        Ok(())
    }

    /// Pushes a name that follows as two lines: module and name.
    fn global(&mut self) -> Result<()> {
        let module = self.line()?;
        let name = self.line()?;
        self.push(PickleNode::Global(format!("{module}.{name}").into()))
    }

    /// Replaces a module and a name on the stack by the qualified name.
    fn stack_global(&mut self) -> Result<()> {
        let name = self.pop()?;
        let module = self.pop()?;
        let global = format!("{}.{}", self.str(module)?, self.str(name)?);
        self.budget.charge_bytes(global.len() as u64)?;
        self.push(PickleNode::Global(global.into()))
    }

    /// Returns a node's string. Fails for other nodes.
    fn str(&self, id: NodeId) -> Result<&Arc<str>> {
        match &self.nodes[id] {
            PickleNode::Leaf(Pickled::Str(text)) => Ok(text),
            _ => Err(Error::format("expected a string")),
        }
    }
}

fn underflow() -> Error {
    Error::format("the pickle pops from an empty stack")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8]) -> Result<Pickled> {
        unpickle(
            &[b"\x80\x02", body, b"."].concat(),
            "data",
            &Budget::default(),
        )
    }

    #[test]
    fn plain_values() {
        let show = |body: &[u8]| format!("{:?}", read(body).unwrap());
        assert_eq!(show(b"K\xff"), "Int(255)");
        assert_eq!(show(b"J\xff\xff\xff\xff"), "Int(-1)");
        assert_eq!(show(b"\x8a\x00"), "Int(0)");
        assert_eq!(show(b"\x8a\x02\xff\x7f"), "Int(32767)");
        assert_eq!(show(b"G\x3f\xf8\0\0\0\0\0\0"), "Float(1.5)");
        assert_eq!(show(b"X\x02\0\0\0\xc3\xa9"), "Str(\"é\")");
        assert_eq!(show(b"(K\x01\x88Nt"), "Tuple([Int(1), Bool(true), None])");
    }

    #[test]
    fn shared_values_stay_shared() {
        let value = read(b"]q\x00(K\x01eh\x00\x86").unwrap();
        let [Pickled::List(left), Pickled::List(right)] = value.as_items().unwrap() else {
            panic!("{value:?}");
        };
        assert!(Arc::ptr_eq(left, right));
    }

    #[test]
    fn type_tags_are_kept() {
        let tagged = read(b"ctorch.jit._pickle\nrestore_type_tag\n(]X\x03\0\0\0Any\x86R");
        assert!(tagged.is_err(), "the mark is never closed");
        let tagged = read(b"ctorch.jit._pickle\nrestore_type_tag\n]X\x03\0\0\0Any\x86R").unwrap();
        assert!(matches!(&tagged, Pickled::List(list) if list.type_tag.as_deref() == Some("Any")));
        let ints = read(b"ctorch.jit._pickle\nbuild_intlist\n](K\x05e\x85R").unwrap();
        assert_eq!(ints.as_items().unwrap()[0].as_int(), Some(5));
    }

    #[test]
    fn objects_and_enumeration_members() {
        let object = read(b"c__torch__.a\nB\n)\x81}X\x01\0\0\0xK\x07sb").unwrap();
        let object = object.as_object().unwrap().clone();
        assert_eq!(&*object.class, "__torch__.a.B");
        assert_eq!(object.get("x").and_then(Pickled::as_int), Some(7));
        let member = read(b"c__torch__\nColor\nK\x01R").unwrap();
        assert_eq!(
            member
                .as_object()
                .unwrap()
                .get("value")
                .and_then(Pickled::as_int),
            Some(1)
        );
    }

    #[test]
    fn unsupported_names_are_reported() {
        let message = |body: &[u8]| read(body).unwrap_err().message().to_owned();
        assert!(message(b"cos\nsystem\nX\x02\0\0\0ls\x85R").contains("os.system"));
        assert!(message(b"cnumpy\ndtype\n").contains("numpy.dtype"));
        assert_eq!(message(b"\x90"), "pickle opcode 0x90");
        assert_eq!(message(b"]q\x00h\x00a"), "a value that contains itself");
        assert_eq!(
            message(b"\x8a\x09123456789"),
            "an integer of more than 64 bits"
        );
    }

    #[test]
    fn malformed_pickles_are_errors() {
        for body in [
            &b"a"[..],
            b"(",
            b"t",
            b"h\x05",
            b"X\xff\xff\xff\xff",
            b"K",
            b"R",
            b"}K\x01s",
            b"Q",
            b"(K\x01R",
        ] {
            assert!(read(body).is_err(), "{body:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of values take hours")]
    fn pickles_that_unfold_are_errors() {
        let deep = [&[b')'][..], &vec![0x85; 100_000]].concat();
        let nested = "values, expressions or calls are nested more than 256 deep";
        assert_eq!(read(&deep).unwrap_err().message(), nested);
        let doubled = [&b")"[..], &b"q\x00h\x00\x86".repeat(100)].concat();
        let message = read(&doubled).unwrap_err().message().to_owned();
        assert_eq!(message, "the file makes more than 4194304 values");
        // Every rung is shallow above the previous one, which has been visited already.
        let rung = [&b"h\x00"[..], &[0x85; 100], b"q\x00"].concat();
        let ladder = [b"()q\x00", rung.repeat(1000).as_slice(), b"t"].concat();
        assert_eq!(read(&ladder).unwrap_err().message(), nested);
    }
}
