//! Tokens and roles.

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::Problem;
use crate::config::{self, Role};

/// Who may come in.
#[derive(Debug)]
pub struct Tokens {
    /// Whether a request needs a token at all.
    required: bool,
    known: Vec<Known>,
}

/// A token is kept as its digest: the comparison then takes the same time for every length and every guess, and a dump of
/// this structure gives nothing away.
#[derive(Debug)]
struct Known {
    digest: [u8; 32],
    role: Role,
}

impl Tokens {
    /// A token is needed as soon as one is configured, and always where others than this machine can connect: without any
    /// configured token nobody comes in there.
    pub fn new(config: &config::Admin) -> Self {
        let known = |token: &config::Token| Known { digest: digest(token.token.reveal()), role: token.role };
        Self {
            required: !config.listen.ip().to_canonical().is_loopback() || !config.tokens.is_empty(),
            known: config.tokens.iter().map(known).collect(),
        }
    }

    pub fn check(&self, headers: &HeaderMap, needed: Role) -> Result<(), Problem> {
        if !self.required {
            return Ok(());
        }
        let role = self.role(bearer(headers).ok_or(Problem::TokenMissing)?).ok_or(Problem::TokenUnknown)?;
        if role < needed {
            return Err(Problem::RoleTooLow { has: name(role), needed: name(needed) });
        }
        Ok(())
    }

    /// Looks at every known token, whatever matches, so that the time tells nothing.
    fn role(&self, token: &str) -> Option<Role> {
        const NONE: u32 = u32::MAX;
        let presented = digest(token);
        let index = self.known.iter().zip(0u32..).fold(NONE, |found, (known, index)| {
            let same: Choice = known.digest.ct_eq(&presented);
            u32::conditional_select(&found, &index, same)
        });
        self.known.get(index as usize).filter(|_| index != NONE).map(|known| known.role)
    }
}

/// The token of `Authorization: Bearer TOKEN`. Two such headers are as good as none: which one counts is anybody's guess.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Admin => "admin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Admin, Token};
    use crate::secret::Secret;

    fn tokens(listen: &str, tokens: &[(&str, Role)]) -> Tokens {
        let token = |(secret, role): &(&str, Role)| Token {
            name: secret.to_uppercase(),
            role: *role,
            token: Secret::new(*secret),
        };
        Tokens::new(&Admin {
            listen: listen.parse().unwrap(),
            probes: None,
            tokens: tokens.iter().map(token).collect(),
            hosts: vec![],
        })
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    const THREE: &[(&str, Role)] =
        &[("view-secret", Role::Viewer), ("operate-secret", Role::Operator), ("admin-secret", Role::Admin)];

    #[test]
    fn each_role_may_do_what_the_ones_below_it_may() {
        let tokens = tokens("127.0.0.1:0", THREE);
        let may = |secret: &str, needed| tokens.check(&headers(&[&format!("Bearer {secret}")]), needed);
        let table = [
            ("view-secret", [true, false, false]),
            ("operate-secret", [true, true, false]),
            ("admin-secret", [true, true, true]),
        ];
        for (secret, expected) in table {
            let seen = [Role::Viewer, Role::Operator, Role::Admin].map(|needed| may(secret, needed).is_ok());
            assert_eq!(seen, expected, "{secret}");
        }
        assert_eq!(may("view-secret", Role::Admin), Err(Problem::RoleTooLow { has: "viewer", needed: "admin" }));
    }

    #[test]
    fn only_one_well_formed_bearer_header_is_a_token() {
        let tokens = tokens("127.0.0.1:0", THREE);
        let check = |values: &[&str]| tokens.check(&headers(values), Role::Viewer);
        assert_eq!(check(&["Bearer view-secret"]), Ok(()));
        assert_eq!(check(&["bearer view-secret"]), Ok(()));
        for missing in [&[][..], &["Bearer"], &["Bearer "], &["view-secret"], &["Basic view-secret"]] {
            assert_eq!(check(missing), Err(Problem::TokenMissing), "{missing:?}");
        }
        assert_eq!(check(&["Bearer view-secret", "Bearer view-secret"]), Err(Problem::TokenMissing));
        for unknown in ["Bearer view-secre", "Bearer view-secret2", "Bearer VIEW-SECRET"] {
            assert_eq!(check(&[unknown]), Err(Problem::TokenUnknown), "{unknown}");
        }
    }

    #[test]
    fn loopback_without_tokens_is_open_and_everything_else_is_not() {
        let check =
            |listen: &str, known: &[(&str, Role)]| tokens(listen, known).check(&headers(&[]), Role::Admin).is_ok();
        assert!(check("127.0.0.1:0", &[]));
        assert!(check("[::1]:0", &[]));
        assert!(!check("127.0.0.1:0", THREE));
        assert!(!check("0.0.0.0:0", &[]));
        assert!(!check("192.0.2.1:0", &[]));
        assert!(!check("[::]:0", THREE));
    }

    #[test]
    fn a_token_is_not_shown() {
        let shown = format!("{:?}", tokens("127.0.0.1:0", THREE));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
