//! Service locators: how to reach a service, such as `tcp:host=127.0.0.1,port=12100`.
//!
//! A locator is a protocol, a colon and options; several, separated by `;`, are alternatives in order of preference. Spaces
//! may stand around `:`, `=`, `,` and `;`. In a value `\` makes the next character literal for the tokenizer; a value in
//! double quotes may hold commas and semicolons.

use core::fmt;

/// One parsed locator. Compared and shown by its original text.
#[derive(Clone)]
pub struct Locator {
    protocol: String,
    options: Vec<(String, String)>,
    original: String,
}

/// Why a text is no locator, or not one of the kind that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatorError {
    text: String,
    problem: &'static str,
}

impl fmt::Display for LocatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "service locator {:?}: {} (expected something like tcp:host=10.0.0.1,port=11100)",
            self.text, self.problem
        )
    }
}

impl core::error::Error for LocatorError {}

/// Parses one or more locators separated by `;`.
pub fn parse_list(text: &str) -> Result<Vec<Locator>, LocatorError> {
    let mut input = Input {
        text,
        at: 0,
        end: 0,
    };
    let mut locators = Vec::new();
    loop {
        locators.push(input.locator().map_err(|problem| LocatorError {
            text: text.to_owned(),
            problem,
        })?);
        if !input.take(';') {
            return Ok(locators);
        }
    }
}

impl Locator {
    /// Parses exactly one locator.
    pub fn parse(text: &str) -> Result<Locator, LocatorError> {
        let mut locators = parse_list(text)?;
        match locators.pop() {
            Some(locator) if locators.is_empty() => Ok(locator),
            _ => Err(LocatorError {
                text: text.to_owned(),
                problem: "one locator is expected here, not a list",
            }),
        }
    }

    pub fn protocol(&self) -> &str {
        &self.protocol
    }

    /// An option's value. Where a key is given twice, the later value holds.
    pub fn option(&self, key: &str) -> Option<&str> {
        let found = self.options.iter().rfind(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// The text that was parsed, without spaces at its ends.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Host and port of a `tcp` locator.
    pub fn tcp(&self) -> Result<(&str, u16), LocatorError> {
        if self.protocol != "tcp" {
            return Err(self.error("this protocol is not spoken here; use tcp"));
        }
        self.host_and_port()
    }

    /// Host and port of any locator.
    pub fn host_and_port(&self) -> Result<(&str, u16), LocatorError> {
        let host = match self.option("host") {
            Some(host) if !host.is_empty() => host,
            _ => return Err(self.error("the option host is missing")),
        };
        let port = self
            .option("port")
            .ok_or_else(|| self.error("the option port is missing"))?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        match port.parse() {
            Ok(port) if digits => Ok((host, port)),
            _ => Err(self.error("the port is not a number from 0 to 65535")),
        }
    }

    /// What is wrong with this locator, for whoever wanted to use it.
    pub fn error(&self, problem: &'static str) -> LocatorError {
        LocatorError {
            text: self.original.clone(),
            problem,
        }
    }
}

impl PartialEq for Locator {
    fn eq(&self, other: &Locator) -> bool {
        self.original == other.original
    }
}

impl Eq for Locator {}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.original)
    }
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locator({:?})", self.original)
    }
}

struct Input<'a> {
    text: &'a str,
    /// Byte offset, always at a character's start.
    at: usize,
    /// Behind the last character that is no space between words.
    end: usize,
}

impl<'a> Input<'a> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
            if wanted != ' ' {
                self.end = self.at;
            }
        }
        found
    }

    fn skip_spaces(&mut self) {
        while self.take(' ') {}
    }

    fn word(&mut self, allowed: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let word = &rest[..rest.find(|c| !allowed(c)).unwrap_or(rest.len())];
        self.at += word.len();
        self.end = self.at;
        word
    }

    /// Up to, and without, the next `;` or the end.
    fn locator(&mut self) -> Result<Locator, &'static str> {
        self.skip_spaces();
        let start = self.at;
        let protocol = self.word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '+');
        if protocol.is_empty() {
            return Err("it does not start with a protocol");
        }
        self.skip_spaces();
        if !self.take(':') {
            return Err("the protocol is not followed by a colon");
        }
        self.skip_spaces();
        let options = if self.ended() {
            Vec::new()
        } else {
            self.options()?
        };
        if !self.ended() {
            return Err("a value is followed by something other than a comma");
        }
        Ok(Locator {
            protocol: protocol.to_owned(),
            options,
            original: self.text[start..self.end].to_owned(),
        })
    }

    fn ended(&self) -> bool {
        matches!(self.peek(), None | Some(';'))
    }

    fn options(&mut self) -> Result<Vec<(String, String)>, &'static str> {
        let mut options = Vec::new();
        loop {
            let key = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
            if key.is_empty() {
                return Err("the name of an option is missing");
            }
            self.skip_spaces();
            if !self.take('=') {
                return Err("an option has no value");
            }
            self.skip_spaces();
            let value = if self.take('"') {
                self.quoted()?
            } else {
                self.unquoted()?
            };
            options.push((key.to_owned(), value));
            self.skip_spaces();
            if !self.take(',') {
                return Ok(options);
            }
            self.skip_spaces();
        }
    }

    fn quoted(&mut self) -> Result<String, &'static str> {
        let mut value = String::new();
        loop {
            match self.next() {
                None => return Err("a quoted value does not end"),
                Some('"') => {
                    self.end = self.at;
                    return Ok(value);
                }
                Some('\\') => self.escaped(&['"'], &mut value)?,
                Some(other) => value.push(other),
            }
        }
    }

    fn unquoted(&mut self) -> Result<String, &'static str> {
        let mut value = String::new();
        // Spaces before a separator are no part of the value; an escaped one is.
        let mut kept = 0;
        loop {
            match self.peek() {
                None | Some(',' | ';') => {
                    value.truncate(kept);
                    return Ok(value);
                }
                Some('"') => return Err("a quote stands inside an unquoted value"),
                Some('\\') => {
                    self.at += 1;
                    self.escaped(&['"', ',', ';'], &mut value)?;
                    kept = value.len();
                    self.end = self.at;
                }
                Some(other) => {
                    self.at += other.len_utf8();
                    value.push(other);
                    if other != ' ' {
                        kept = value.len();
                        self.end = self.at;
                    }
                }
            }
        }
    }

    /// The character behind a backslash; both stay unless the character is one that would otherwise end the value.
    fn escaped(&mut self, bare: &[char], value: &mut String) -> Result<(), &'static str> {
        let character = self.next().ok_or("a backslash stands at the end")?;
        if !bare.contains(&character) {
            value.push('\\');
        }
        value.push(character);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options(text: &str) -> Vec<(String, String)> {
        Locator::parse(text).unwrap().options
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn parses_a_list_in_order() {
        let list =
            parse_list(" tcp: host = 127.0.0.1 , port=11100 ; basic+udp:host=a,port=1").unwrap();
        assert_eq!(list.len(), 2);
        assert_eq!(list[0].original(), "tcp: host = 127.0.0.1 , port=11100");
        assert_eq!(list[0].tcp(), Ok(("127.0.0.1", 11100)));
        assert_eq!(list[1].protocol(), "basic+udp");
        assert_eq!(list[1].to_string(), "basic+udp:host=a,port=1");
        assert!(list[1].tcp().is_err());
    }

    #[test]
    fn options_may_be_absent_repeated_quoted_and_escaped() {
        assert_eq!(options("mock:"), []);
        let twice = Locator::parse("a:x=1,x=2").unwrap();
        assert_eq!(twice.option("x"), Some("2"));
        assert_eq!(twice.option("y"), None);
        assert_eq!(options(r#"a:x="1,2;3""#), [pair("x", "1,2;3")]);
        assert_eq!(options(r#"a:x="q\"q\,q""#), [pair("x", r#"q"q\,q"#)]);
        assert_eq!(options(r"a:x=1\,2\;3\n"), [pair("x", r"1,2;3\n")]);
        assert_eq!(options(r"a:x=\\,y=b"), [pair("x", r"\\"), pair("y", "b")]);
        assert_eq!(options("a:x=,y=a b "), [pair("x", ""), pair("y", "a b")]);
    }

    #[test]
    fn refuses_with_a_reason() {
        for (text, reason) in [
            ("", "protocol"),
            ("tcp", "colon"),
            ("tcp:host", "no value"),
            ("tcp:host=a,", "name of an option"),
            ("tcp:=1", "name of an option"),
            ("tcp:host=a;", "protocol"),
            ("t-p:host=a", "colon"),
            (r#"a:x="1"#, "does not end"),
            (r#"a:x=1"2""#, "quote"),
            (r#"a:x="1"2"#, "other than a comma"),
            (r"a:x=1\", "backslash"),
        ] {
            let error = parse_list(text).unwrap_err();
            assert!(error.to_string().contains(reason), "{text:?}: {error}");
        }
        assert!(Locator::parse("a:;b:").is_err());
    }

    #[test]
    fn tcp_needs_host_and_port() {
        for (text, reason) in [
            ("tcp:port=1", "host is missing"),
            ("tcp:host=,port=1", "host is missing"),
            ("tcp:host=a", "port is missing"),
            ("tcp:host=a,port=65536", "65535"),
            ("tcp:host=a,port=+1", "65535"),
            ("tcp:host=a,port=", "65535"),
        ] {
            let error = Locator::parse(text).unwrap().tcp().unwrap_err();
            assert!(error.to_string().contains(reason), "{text:?}: {error}");
        }
        assert_eq!(
            Locator::parse("tcp:host=h,port=0").unwrap().tcp(),
            Ok(("h", 0))
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-z:=,;\"\\\\ é]{0,24}") {
            let _ = parse_list(&text);
        }

        #[test]
        fn the_original_text_parses_to_the_same(text in "[a-z]{1,3}:([a-z]=[a-z\\\\,; ]{0,4}){0,2}") {
            if let Ok(locator) = Locator::parse(&text) {
                let again = Locator::parse(locator.original()).unwrap();
                prop_assert_eq!(&again, &locator);
                prop_assert_eq!(again.options, locator.options);
            }
        }

        #[test]
        fn any_value_can_be_quoted(value in "[ -!#-\\[\\]-~]{0,20}") {
            let text = format!("a:x=\"{value}\"");
            prop_assert_eq!(options(&text), [pair("x", &value)]);
        }
    }
}
