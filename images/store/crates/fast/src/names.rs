//! Numbers of sessions that nobody guesses, however many of them are known.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Counts, under a key: a number tells nothing of the others, nor of the key.
pub struct Names {
    key: [u64; 2],
    /// Of the last that was given; 0 names this run.
    count: u64,
}

impl Names {
    pub fn new(key: [u64; 2]) -> Names {
        Names { key, count: 0 }
    }

    fn at(&self, count: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write_u64(count);
        hasher.finish()
    }

    /// Tells this run from others, before and after.
    pub fn incarnation(&self) -> u64 {
        self.at(0)
    }

    pub fn next(&mut self) -> u64 {
        self.count += 1;
        self.at(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_siphash_2_4() {
        // The key and the message 0..8 of the paper's first test vectors: what is given is that function of a key and a count.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let names = Names::new(key);
        assert_eq!(names.at(0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
        let mut names = Names::new(key);
        let (first, second) = (names.next(), names.next());
        assert!(first != second && first != names.incarnation());
    }
}
