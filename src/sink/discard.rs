//! Takes everything and keeps nothing: for measurements and dry runs. Dead letters are kept all the same.

use super::{Blocking, Positions, WriteError};
use crate::delivery::Delivery;

#[derive(Debug)]
pub struct Discard;

impl Blocking for Discard {
    fn positions(&self) -> Option<Positions> {
        None
    }

    fn write(&mut self, _deliveries: &[Delivery]) -> Result<(), WriteError> {
        Ok(())
    }
}
