//! Bytes that are sent from where they lie.

/// Bytes at the end of a message that their owner keeps where they are until they are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    /// What the owner calls them.
    pub token: u64,
    pub length: usize,
}

/// Gives what was lent under a token, of that length; `None` if it is not there any more: the message is then never sent whole.
pub type Lender<'l> = dyn Fn(u64, usize) -> Option<&'l [u8]> + 'l;
