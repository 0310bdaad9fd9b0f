//! Where a key's requests go: its address, with the key as one percent-encoded part.
//!
//! | key | in the address |
//! |---|---|
//! | letters, digits, `-`, `.`, `_`, `~` | as they are |
//! | every other byte, `/`, `%` and bytes that are no UTF-8 too | `%` and two hex digits |
//! | empty, `.`, `..` | an error: no address would reach them |

use anyhow::bail;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use reqwest::Url;

/// Everything but what RFC 3986 calls unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub const PLACEHOLDER: &str = "{key}";

/// Stands for the key while the template is parsed: no parser changes it.
const MARKER: &str = "tidegate-stands-for-the-key";

#[derive(Debug)]
pub struct Target {
    /// Normalised, up to the key.
    before: String,
    /// From the key on; `None` = the address holds no key.
    after: Option<String>,
    host: String,
}

impl Target {
    /// # Errors
    /// When the template is no address that requests can be sent to.
    pub fn new(template: &str) -> anyhow::Result<Self> {
        let url = match Url::parse(&template.replace(PLACEHOLDER, MARKER)) {
            Ok(url) => url,
            Err(error) => bail!("the sink's `url` is no address: {error}"),
        };
        if !matches!(url.scheme(), "http" | "https") {
            bail!("the sink's `url` has the scheme `{}`; `http` and `https` are known", url.scheme());
        }
        if !url.username().is_empty() || url.password().is_some() {
            bail!("the sink's `url` holds a user or a password; give them as `auth`, where they are never shown");
        }
        let Some(host) = url.host_str().filter(|host| !host.contains(MARKER)) else {
            bail!("the sink's `url` has no fixed host");
        };
        let port = url.port().map_or(String::new(), |port| format!(":{port}"));
        let host = format!("{}://{host}{port}", url.scheme());
        let mut parts = url.as_str().split(MARKER);
        let before = parts.next().unwrap_or_default().to_owned();
        let after = parts.next().map(str::to_owned);
        if parts.next().is_some() {
            bail!("the sink's `url` holds `{PLACEHOLDER}` more than once");
        }
        Ok(Self { before, after, host })
    }

    pub fn holds_key(&self) -> bool {
        self.after.is_some()
    }

    /// Scheme, host and port: what may be shown.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// # Errors
    /// Why this key has no address, in words.
    pub fn address(&self, key: Option<&[u8]>) -> Result<Url, String> {
        let address = match (&self.after, key) {
            (None, _) => self.before.clone(),
            (Some(_), None) => return Err("the record has no key, and the address needs one".to_owned()),
            (Some(_), Some(b"")) => return Err("the key is empty, and an address needs one that is not".to_owned()),
            (Some(_), Some(key @ (b"." | b".."))) => {
                let key = String::from_utf8_lossy(key);
                return Err(format!("the key is `{key}`, which in an address means another place"));
            }
            (Some(after), Some(key)) => format!("{}{}{after}", self.before, percent_encode(key, ESCAPED)),
        };
        match Url::parse(&address) {
            // Whatever a parser would make of it, it is sent as it is or not at all.
            Ok(url) if url.as_str() == address => Ok(url),
            _ => Err("the key cannot be written into the address".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(key: &[u8], expected: Result<&str, &str>) {
        let target = Target::new("http://h/v1/{key}?x=1").unwrap();
        let address = target.address(Some(key)).map(|url| url.to_string());
        match (address, expected) {
            (Ok(address), Ok(expected)) => assert_eq!(address, format!("http://h/v1/{expected}?x=1")),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (address, _) => panic!("{address:?}"),
        }
    }

    #[test]
    fn a_key_is_one_part_of_the_path() {
        check(b"abc-._~9", Ok("abc-._~9"));
        check(b"a/b", Ok("a%2Fb"));
        check(b"a?x=1", Ok("a%3Fx%3D1"));
        check(b"../admin", Ok("..%2Fadmin"));
        check(b"%2e%2e", Ok("%252e%252e"));
        check("é".as_bytes(), Ok("%C3%A9"));
        check(b"\xff\0 #", Ok("%FF%00%20%23"));
        check(b"a\\b", Ok("a%5Cb"));
        check(b"...", Ok("..."));
        check(b"", Err("the key is empty"));
        check(b".", Err("the key is `.`"));
        check(b"..", Err("the key is `..`"));
    }

    #[test]
    fn a_key_that_a_parser_would_read_as_a_place_is_not_sent() {
        assert!(Target::new("http://h/a/.{key}").unwrap().address(Some(b".x")).is_ok());
        assert!(Target::new("http://h/a/.{key}").unwrap().address(Some(b"%2e")).is_ok());
        assert!(Target::new("http://h/a/%2e{key}/b").unwrap().address(Some(b"x")).is_ok());
    }

    #[test]
    fn a_record_without_a_key_has_an_address_only_where_none_is_asked_for() {
        assert!(Target::new("http://h/{key}").unwrap().address(None).is_err());
        let log = Target::new("http://h:81/log").unwrap();
        assert_eq!(log.address(None).unwrap().as_str(), "http://h:81/log");
        assert_eq!(log.address(Some(b"..")).unwrap().as_str(), "http://h:81/log");
        assert_eq!(log.host(), "http://h:81");
    }

    #[test]
    fn a_template_that_is_no_address_says_why_without_its_secrets() {
        for (template, expected) in [
            ("h/{key}", "no address"),
            ("ftp://h/{key}", "`ftp`"),
            ("http://{key}/x", "no fixed host"),
            ("http://h/{key}/{key}", "more than once"),
            ("http://me:hunter2@h/{key}", "`auth`"),
        ] {
            let error = Target::new(template).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
        }
    }

    proptest! {
        /// Two keys never share an address, and none leaves its place in the path.
        #[test]
        fn addresses_are_apart_and_in_place(
            a in proptest::collection::vec(any::<u8>(), 0..6),
            b in proptest::collection::vec(proptest::sample::select(b"./%2eE\\".to_vec()), 0..6),
        ) {
            let target = Target::new("http://h/v1/{key}/end").unwrap();
            let addresses: Vec<_> = [&a, &b].into_iter().map(|key| target.address(Some(key))).collect();
            for address in addresses.iter().flatten() {
                let parts: Vec<&str> = address.path_segments().unwrap().collect();
                prop_assert!(parts.len() == 3 && parts[0] == "v1" && parts[2] == "end", "{}", address);
            }
            if let (Ok(first), Ok(second)) = (&addresses[0], &addresses[1]) {
                prop_assert_eq!(first == second, a == b);
            }
        }
    }
}
