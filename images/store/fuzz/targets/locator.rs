//! Service locators.
#![no_main]

use fuzz::bounded_target;
use wire::locator::{Locator, parse_list};

bounded_target!(fuzz::Bound::DECODER, |text: &str| {
    let Ok(locators) = parse_list(text) else {
        return;
    };
    assert!(!locators.is_empty());
    for locator in &locators {
        assert!(text.contains(locator.original()));
        // What is shown can be typed again, and means the same.
        let again =
            Locator::parse(locator.original()).expect("the original text of a locator is one");
        assert_eq!(again.original(), locator.original());
        assert_eq!(again.protocol(), locator.protocol());
        assert_eq!(again.tcp(), locator.tcp());
        assert_eq!(again.option("host"), locator.option("host"));
    }
});
