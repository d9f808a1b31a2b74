//! An archive as a script.

use super::Archive;
use crate::archive::{Pickled, TensorRecord};
use crate::budget::Budget;
use crate::error::{Location, Result};
use crate::tensor::Tensor;
use crate::trace::program::InputSpec;
use crate::trace::script::import::input_spec_of;
use crate::trace::script::{Declaration, Script};

impl Script for Archive {
    fn root(&self) -> &Pickled {
        Archive::root(self)
    }

    fn constants(&self) -> &[Pickled] {
        Archive::constants(self)
    }

    fn declaration(&self, name: &str) -> Result<Option<Declaration<'_>>> {
        self.source().declaration(name)
    }

    fn example_inputs(&self, method: &str) -> Result<Option<Vec<InputSpec>>> {
        let traced = self.traced_inputs().and_then(Pickled::as_dict);
        let items = traced.and_then(|dict| dict.get(method)?.as_items());
        items
            .map(|items| items.iter().map(input_spec_of).collect())
            .transpose()
    }

    fn operator_version(&self) -> u32 {
        self.version()
    }

    fn location(&self, file: &str, offset: usize) -> Option<Location> {
        self.source().location(file, offset)
    }

    fn first_location(&self, file: &str, offset: usize) -> Option<Location> {
        self.source().first_location(file, offset)
    }

    fn open_tensor(&self, record: &TensorRecord, budget: &Budget) -> Result<Tensor> {
        record.open(self.container(), budget)
    }

    fn new_budget(&self) -> Budget {
        self.container().new_budget()
    }
}
