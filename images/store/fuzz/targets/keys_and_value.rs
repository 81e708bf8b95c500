//! Keys and value of an object.
#![no_main]

use fuzz::bounded_target;
use wire::keys::KeysAndValue;

bounded_target!(fuzz::Bound::DECODER, |data: &[u8]| {
    let quick = KeysAndValue::primary_and_value(data);
    let Ok(object) = KeysAndValue::parse(data) else {
        return;
    };
    assert_eq!(quick, Some((object.primary_key(), object.value())));
    assert_eq!(object.keys().count(), object.key_count());
    let keys: usize = object.keys().map(<[u8]>::len).sum();
    assert_eq!(
        1 + 2 * object.key_count() + keys + object.value().len(),
        data.len()
    );
    let mut written = Vec::new();
    object.encode(&mut written);
    assert_eq!(written, data);
});
