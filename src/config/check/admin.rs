//! The admin API's settings.

use std::net::SocketAddr;

use super::Checker;
use crate::config::checked::{Admin, Token};
use crate::config::path::KeyPath;
use crate::config::{defaults, written};
use crate::secret::Secret;

impl Checker<'_> {
    pub(super) fn admin(&mut self, written: Option<&written::Admin>) -> Admin {
        let path = KeyPath::root().key("admin");
        let nothing = written::Admin::default();
        let written = written.unwrap_or(&nothing);
        let listen = self.address(&path.key("listen"), written.listen.as_deref().unwrap_or(defaults::ADMIN_LISTEN));
        let probes = written.probes.as_deref().map(|probes| self.address(&path.key("probes"), probes));
        if let Some(probes) = probes
            && probes.port() == listen.port()
            && probes.port() != 0
            && (probes.ip() == listen.ip() || probes.ip().is_unspecified() || listen.ip().is_unspecified())
        {
            self.conflict(
                &path.key("probes"),
                &["listen"],
                format!("`listen` has port {} too", probes.port()),
                "give the probes a port of their own",
            );
        }
        if !listen.ip().is_loopback() && written.tokens.is_empty() {
            let help = "add one under `tokens`, or listen on `127.0.0.1` or `[::1]`";
            self.conflict(
                &path.key("listen"),
                &["tokens"],
                format!("`{listen}` can be reached from other machines, and there is no token"),
                help,
            );
        }
        for (index, host) in written.hosts.iter().enumerate() {
            let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
            if host.is_empty() || !host.chars().all(is_host) {
                let help =
                    "accepted: a name as in the `Host` header, such as `tidegate.internal` or `tidegate.internal:8080`";
                self.error(&path.key("hosts").index(index), format!("`{host}` is not the name of a host"), help);
            }
        }
        Admin {
            listen,
            probes,
            tokens: self.tokens(&path.key("tokens"), &written.tokens),
            hosts: written.hosts.clone(),
        }
    }

    fn tokens(&mut self, path: &KeyPath, written: &[written::Token]) -> Vec<Token> {
        for (index, token) in written.iter().enumerate() {
            let place = path.index(index);
            let characters = token.token.chars().count();
            if characters < defaults::TOKEN_MIN_CHARACTERS {
                let help = format!(
                    "at least {} characters; `openssl rand -hex 32` makes a good one",
                    defaults::TOKEN_MIN_CHARACTERS
                );
                self.error(&place.key("token"), format!("the token has {characters} characters"), help);
            } else if !token.token.chars().all(|c| c.is_ascii_graphic()) {
                let help = "letters, digits and punctuation of ASCII, without blanks and line breaks";
                self.error(&place.key("token"), "the token has a character that a header cannot hold", help);
            }
            for (earlier, other) in written.iter().take(index).enumerate() {
                if other.name == token.name {
                    let help = format!("`tokens[{earlier}]` has it; the log tells holders apart by name");
                    self.error(&place.key("name"), format!("`{}` is the name of another token", token.name), help);
                }
                if other.token == token.token {
                    self.error(
                        &place.key("token"),
                        format!("`{}` has the same token", other.name),
                        "give each holder a token of their own",
                    );
                }
            }
        }
        let token = |token: &written::Token| Token {
            name: token.name.clone(),
            role: token.role,
            token: Secret::new(token.token.clone()),
        };
        written.iter().map(token).collect()
    }

    fn address(&mut self, path: &KeyPath, text: &str) -> SocketAddr {
        text.parse().unwrap_or_else(|_| {
            let help = "accepted: an IP address and a port, such as `127.0.0.1:8080` or `[::1]:8080`";
            self.error(path, format!("`{text}` is not an address to listen on"), help);
            // Loopback, so that no other rule speaks up.
            SocketAddr::from(([127, 0, 0, 1], 0))
        })
    }
}
