//! Conversion of nodes that refer to each other by index to a tree of values.

use super::*;

/// Converts nodes to values. Each node is converted once, so sharing is preserved.
pub(super) fn resolve(nodes: Vec<PickleNode>, root: NodeId, budget: &Budget) -> Result<Pickled> {
    let mut resolver = Resolver {
        progress: vec![Progress::Untouched; nodes.len()],
        tree_sizes: vec![TreeSize::default(); nodes.len()],
        nodes,
        budget,
    };
    resolver.resolve(root, 0)
}

/// Progress of the conversion of a node.
#[derive(Clone)]
enum Progress {
    /// Not started.
    Untouched,
    /// In progress. A node that contains itself is found in this state.
    Started,
    /// Converted to this value.
    Done(Pickled),
}

struct Resolver<'a> {
    nodes: Vec<PickleNode>,
    /// Progress of each node.
    progress: Vec<Progress>,
    /// Size of the tree below each converted node.
    tree_sizes: Vec<TreeSize>,
    budget: &'a Budget,
}

/// Depth and number of values of the tree below a node. The recursion visits a shared value only once, so the depth and
/// the number of calls of the recursion do not bound those of the tree.
#[derive(Clone, Copy, Default)]
struct TreeSize {
    depth: usize,
    values: usize,
}

impl TreeSize {
    /// The size of the tree of a node with these children. Fails if the tree is too large: a traversal visits a shared value
    /// at each occurrence.
    fn of_parent(children: impl Iterator<Item = TreeSize>, budget: &Budget) -> Result<TreeSize> {
        let start = TreeSize {
            depth: 0,
            values: 1,
        };
        let total = children.fold(start, |total, child| TreeSize {
            depth: total.depth.max(child.depth + 1),
            values: total.values.saturating_add(child.values),
        });
        budget.check_values(total.values)?;
        budget.check_depth(total.depth)?;
        Ok(total)
    }
}

impl Resolver<'_> {
    /// Converts a node, at a depth of the recursion.
    fn resolve(&mut self, id: NodeId, depth: usize) -> Result<Pickled> {
        match &self.progress[id] {
            Progress::Done(value) => return Ok(value.clone()),
            Progress::Started => return Err(Error::unsupported("a value that contains itself")),
            Progress::Untouched => self.progress[id] = Progress::Started,
        }
        self.budget.check_depth(depth)?;
        let node = std::mem::replace(&mut self.nodes[id], PickleNode::Tuple(Vec::new()));
        let children = node.children();
        let value = self.value(node, depth + 1)?;
        self.tree_sizes[id] = TreeSize::of_parent(
            children.iter().map(|child| self.tree_sizes[*child]),
            self.budget,
        )?;
        self.progress[id] = Progress::Done(value.clone());
        Ok(value)
    }

    /// Converts the children of a node, and makes its value.
    fn value(&mut self, node: PickleNode, depth: usize) -> Result<Pickled> {
        Ok(match node {
            PickleNode::Leaf(value) => value,
            PickleNode::Tuple(items) => Pickled::Tuple(self.items(items, depth)?.into()),
            PickleNode::List(items, type_tag) => {
                let items = self.items(items, depth)?;
                Pickled::List(Arc::new(PickledList { items, type_tag }))
            }
            PickleNode::Dict(entries, type_tag) => {
                let entries = self.entries(entries, depth)?;
                Pickled::Dict(Arc::new(PickledDict { entries, type_tag }))
            }
            PickleNode::Object(class, attributes) => self.object(class, attributes, depth)?,
            PickleNode::Global(name) => return Err(globals::unsupported_global(&name)),
            PickleNode::Storage(record) => Pickled::Tensor(Arc::new(*record)),
        })
    }

    fn items(&mut self, items: Vec<NodeId>, depth: usize) -> Result<Vec<Pickled>> {
        items
            .into_iter()
            .map(|id| self.resolve(id, depth))
            .collect()
    }

    fn entries(
        &mut self,
        ids: Vec<(NodeId, NodeId)>,
        depth: usize,
    ) -> Result<Vec<(Pickled, Pickled)>> {
        let mut entries = Vec::with_capacity(ids.len());
        for (key, value) in ids {
            entries.push((self.resolve(key, depth)?, self.resolve(value, depth)?));
        }
        Ok(entries)
    }

    fn object(
        &mut self,
        class: Arc<str>,
        ids: Vec<(NodeId, NodeId)>,
        depth: usize,
    ) -> Result<Pickled> {
        let mut attributes = Vec::with_capacity(ids.len());
        for (name, value) in ids {
            let Pickled::Str(name) = self.resolve(name, depth)? else {
                return Err(Error::format("an attribute's name is not a string").at(class));
            };
            let value = self
                .resolve(value, depth)
                .at(|| format!("{class}.{name}"))?;
            attributes.push((name, value));
        }
        Ok(Pickled::Object(Arc::new(PickledObject {
            class,
            attributes,
        })))
    }
}

impl PickleNode {
    /// The nodes that a node refers to.
    fn children(&self) -> Vec<NodeId> {
        match self {
            PickleNode::Tuple(items) | PickleNode::List(items, _) => items.clone(),
            PickleNode::Dict(entries, _) | PickleNode::Object(_, entries) => entries
                .iter()
                .flat_map(|(key, value)| [*key, *value])
                .collect(),
            PickleNode::Leaf(_) | PickleNode::Global(_) | PickleNode::Storage(_) => Vec::new(),
        }
    }
}
