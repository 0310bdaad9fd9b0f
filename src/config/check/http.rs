//! The HTTP sink's settings.

use std::num::NonZeroUsize;

use url::Url;

use super::Checker;
use crate::config::checked::{Auth, Delete, DeleteMethod, Http, Method, OnDrop, OnReject, Tls};
use crate::config::path::KeyPath;
use crate::config::suggest::suggest;
use crate::config::{defaults, written};
use crate::secret::Secret;

const PLACEHOLDER: &str = "{key}";
/// Stands for the key while the address is parsed: nothing in it is ever escaped, and no address has it.
const STAND_IN: &str = "tidegate0key0stand0in";
const EXPECTED: &str = "accepted: an address such as `https://crm.internal/profiles/{key}`";
/// What the gateway and the protocol set themselves.
const TAKEN_HEADERS: [&str; 7] =
    ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "idempotency-key"];
const TAKEN_HEADER_PREFIX: &str = "tidegate-";

impl Checker<'_> {
    pub(super) fn http(&mut self, path: &KeyPath, written: &written::Http) -> Http {
        let method = written.method.unwrap_or(Method::Put);
        let has_key = written.url.contains(PLACEHOLDER);
        let is_url = self.url(&path.key("url"), &written.url);
        if is_url && method != Method::Post && !has_key {
            let name = if method == Method::Put { "PUT" } else { "PATCH" };
            let help = "put `{key}` where the record's key goes, as in `https://crm.internal/profiles/{key}`; or use `method: POST`";
            self.conflict(&path.key("url"), &["method"], format!("`{name}` needs an address for each key"), help);
        }
        let plain = || Delete { method: DeleteMethod::Delete, url: written.url.clone(), body: None };
        let delete = match &written.delete {
            Some(written::Delete::Word(written::DeleteWord::Ignore)) => None,
            Some(written::Delete::Word(written::DeleteWord::Delete)) => Some(plain()),
            Some(written::Delete::Request(request)) => Some(self.delete(&path.key("delete"), request, &written.url)),
            None => has_key.then(plain),
        };
        let deletes_all = |delete: &Delete| delete.method == DeleteMethod::Delete && !delete.url.contains(PLACEHOLDER);
        if is_url && delete.as_ref().is_some_and(deletes_all) {
            let help = "a `DELETE` to the address of all records would delete them all; put `{key}` into `url`, or write `delete: ignore`";
            self.conflict(&path.key("delete"), &["url"], "`delete: DELETE` needs an address for each key", help);
        }
        for (key, deletes) in [
            ("on_drop", written.on_drop == Some(OnDrop::Delete)),
            ("on_reject", written.on_reject == Some(OnReject::Delete)),
        ] {
            if deletes && delete.is_none() {
                self.conflict(
                    &path.key(key),
                    &["delete", "url"],
                    format!("`{key}: delete` needs a `DELETE` to send"),
                    "write `delete: DELETE`",
                );
            }
        }
        let timeout = self.duration(
            &path.key("timeout"),
            written.timeout.as_ref(),
            defaults::HTTP_TIMEOUT,
            &defaults::HTTP_TIMEOUT_RANGE,
        );
        let connect_timeout = self.duration(
            &path.key("connect_timeout"),
            written.connect_timeout.as_ref(),
            defaults::HTTP_CONNECT_TIMEOUT,
            &defaults::HTTP_TIMEOUT_RANGE,
        );
        let in_flight = written.in_flight.unwrap_or(defaults::HTTP_IN_FLIGHT);
        Http {
            url: written.url.clone(),
            method,
            delete,
            headers: self.headers(path, written),
            auth: written.auth.as_ref().map(|auth| self.auth(&path.key("auth"), auth)),
            tls: written.tls.as_ref().map_or_else(Tls::default, |tls| self.tls(&path.key("tls"), tls, &written.url)),
            connect_timeout,
            timeout,
            in_flight: NonZeroUsize::new(in_flight).unwrap_or(NonZeroUsize::MIN),
        }
    }

    /// Whether it is an address, whatever else is wrong with it.
    fn url(&mut self, path: &KeyPath, text: &str) -> bool {
        for placeholder in braces(text) {
            if placeholder != PLACEHOLDER {
                let help =
                    format!("{}\nother braces are written `%7B` and `%7D`", suggest(&placeholder, &[PLACEHOLDER]));
                self.error(path, format!("`{placeholder}` is not a placeholder"), help);
                return false;
            }
        }
        let count = text.matches(PLACEHOLDER).count();
        if count > 1 {
            self.error(path, format!("`{PLACEHOLDER}` appears {count} times"), "write it once");
            return false;
        }
        let url = match Url::parse(&text.replace(PLACEHOLDER, STAND_IN)) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => url,
            Ok(url) if text.contains("://") => {
                let message = format!("an HTTP service cannot be reached by `{}://`", url.scheme());
                self.error(path, message, EXPECTED);
                return false;
            }
            // Of `localhost:8080/…` the name would count as a scheme.
            Ok(_) | Err(url::ParseError::RelativeUrlWithoutBase) => {
                self.error(path, "the address does not begin with `http://` or `https://`", EXPECTED);
                return false;
            }
            Err(error) => {
                self.error(path, format!("this is not an address: {error}"), EXPECTED);
                return false;
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            let help = "use `auth: { basic: { user: …, password: … } }`: addresses appear in logs";
            self.error(path, "the address holds a user or a password", help);
        }
        if url.fragment().is_some() {
            self.error(
                path,
                "the address has a fragment (`#…`), which is never sent",
                "leave it out, or write `%23` for a `#`",
            );
        }
        let is_segment = url.path_segments().is_some_and(|mut segments| segments.any(|segment| segment == STAND_IN));
        if count == 1 && !is_segment {
            let help = "accepted: such as `/profiles/{key}` or `/profiles/{key}/state`";
            self.error(path, format!("`{PLACEHOLDER}` is not a whole segment of the path"), help);
        }
        true
    }

    fn delete(&mut self, path: &KeyPath, written: &written::DeleteRequest, url: &str) -> Delete {
        let url = written.url.as_deref().unwrap_or(url);
        if written.url.is_some() {
            self.url(&path.key("url"), url);
        }
        let body = written.body.clone();
        let names_key = url.contains(PLACEHOLDER) || body.as_ref().is_some_and(|body| body.contains(PLACEHOLDER));
        if !names_key && written.method != DeleteMethod::Delete {
            let help = "put `{key}` into its `url` or its `body`";
            self.error(path, "the request does not say which key is deleted", help);
        }
        Delete { method: written.method, url: url.to_owned(), body }
    }

    /// Whether what stands there can be used is known to who makes the connections.
    fn tls(&mut self, path: &KeyPath, written: &written::Tls, url: &str) -> Tls {
        if url.starts_with("http://") {
            self.conflict(
                path,
                &["url"],
                "`tls` is of no use at an address that begins with `http://`",
                "write `https://` in `url`, or leave `tls` out",
            );
        }
        let identity = match (&written.certificate, &written.key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), Secret::new(key.clone()))),
            (None, None) => None,
            (Some(_), None) => {
                self.error(&path.key("certificate"), "a certificate is of no use without its key", "write `key` too");
                None
            }
            (None, Some(_)) => {
                self.error(&path.key("key"), "a key is of no use without its certificate", "write `certificate` too");
                None
            }
        };
        Tls { ca: written.ca.clone(), identity }
    }

    fn headers(&mut self, path: &KeyPath, written: &written::Http) -> Vec<(String, Secret)> {
        let mut headers: Vec<(String, Secret)> = Vec::new();
        for (name, value) in &written.headers {
            let place = path.key("headers").key(name);
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            let lower = name.to_ascii_lowercase();
            if name.is_empty() || !name.chars().all(is_token) {
                self.error(
                    &place,
                    format!("`{name}` is not the name of a header"),
                    "accepted: letters, digits and `-`",
                );
            } else if TAKEN_HEADERS.contains(&lower.as_str()) || lower.starts_with(TAKEN_HEADER_PREFIX) {
                self.error(&place, format!("the header `{name}` is set by the gateway"), "leave it out");
            } else if lower == "authorization" && written.auth.is_some() && !self.is_gone(&path.key("auth")) {
                self.error(&place, "`auth` sets the header `Authorization` too", "keep one of the two");
            } else if let Some((other, _)) = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)) {
                let help = "the case of a header's name does not matter; keep one of the two";
                self.error(&place, format!("`{name}` and `{other}` are the same header"), help);
            }
            self.header_value(&place, value);
            headers.push((name.clone(), Secret::new(value.clone())));
        }
        headers
    }

    fn auth(&mut self, path: &KeyPath, written: &written::Auth) -> Auth {
        match written {
            written::Auth::Bearer(token) => {
                let place = path.key("bearer");
                if token.is_empty() {
                    self.error(&place, "the token is empty", "");
                }
                self.header_value(&place, token);
                Auth::Bearer(Secret::new(token.clone()))
            }
            written::Auth::Basic(written::Basic { user, password }) => {
                if user.is_empty() || user.contains(':') || user.chars().any(char::is_control) {
                    let help = "accepted: text without `:`, which ends the user's name";
                    self.error(&path.key("basic").key("user"), format!("`{user}` cannot be a user's name here"), help);
                }
                if password.chars().any(char::is_control) {
                    let help = "of a file, one line break at the end is left out; is there another?";
                    self.error(&path.key("basic").key("password"), "the password has a control character", help);
                }
                Auth::Basic { user: user.clone(), password: Secret::new(password.clone()) }
            }
        }
    }

    /// What RFC 9110 allows, without the blanks around it, which are not part of the value.
    fn header_value(&mut self, path: &KeyPath, value: &str) {
        if value.chars().any(|c| c.is_control() && c != '\t') || value.trim_matches([' ', '\t']) != value {
            let help = "no line breaks, no control characters, no blanks at the ends\n\
                        of a file, one line break at the end is left out; is there another?";
            self.error(path, "the value cannot be sent in a header", help);
        }
    }
}

/// Whatever stands in braces, and braces that stand alone.
fn braces(text: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find(['{', '}']) {
        let end =
            rest[start..].find('}').filter(|_| rest[start..].starts_with('{')).map_or(start + 1, |end| start + end + 1);
        found.push(rest[start..end].to_owned());
        rest = &rest[end..];
    }
    found
}
