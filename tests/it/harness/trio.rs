//! One route with a mask and the three kinds of sinks, and the comparison of all of them with the topic's fold.

use std::time::Duration;

use tidegate::gateway::status::LaneState;

use super::gateway::run_header;
use super::oracle::{Dump, Sinks};
use super::{Gateway, Receiver, Site, Topic, read, route};

/// The names of the lanes.
pub const LANES: [&str; 3] = ["audit", "read_model", "crm"];

#[derive(Debug)]
pub struct Trio {
    pub site: Site,
    pub receiver: Receiver,
}

impl Trio {
    pub fn new(topic: &Topic<'_>, group: &str) -> Self {
        let receiver = Receiver::keeping_state();
        let crm = format!(
            r#"  crm: {{ type: http, url: "{}", method: PUT, delete: DELETE, in_flight: 64, {} }}"#,
            receiver.url(),
            run_header()
        );
        let routes = route(
            topic,
            &[
                "plugins: [{ use: std/mask-fields, config: { fields: [email] } }]",
                "sinks:",
                r#"  audit: { type: file, path: "audit/{topic}-{partition}.ndjson", rotate: { size: 64MiB } }"#,
                "  read_model: { type: sqlite, path: profiles.db, table: profiles }",
                &crm,
            ],
        );
        let routes = routes.replace(&format!("group: {}", topic.name), &format!("group: {group}"));
        Self { site: Site::with_memory(topic.broker, "512MiB", &routes), receiver }
    }

    /// Whether a lane has delivered anything, seen at its sink.
    pub fn has_delivered(&self, lane: &str) -> bool {
        match lane {
            "audit" => read::segments(&self.site.path("audit")).iter().any(|path| read::line_count(path) > 0),
            "read_model" => read::sqlite_count(&self.site.path("profiles.db"), "profiles") > 0,
            "crm" => self.receiver.accepted_count() > 0,
            _ => panic!("no lane `{lane}`"),
        }
    }

    /// Compares the three sinks with the fold of the topic.
    #[track_caller]
    pub fn assert_equal(&self, dump: &Dump) -> String {
        let database = self.site.path("profiles.db");
        let files = self.site.path("audit");
        dump.assert_equal(&Sinks {
            sqlite: Some((&database, "profiles")),
            http: Some(&self.receiver),
            files: Some(&files),
            masked: &["email"],
            ..Sinks::default()
        })
    }
}

pub fn is_live(gateway: &Gateway, lane: &str) -> bool {
    gateway.lane(lane).state == LaneState::Live
}

/// Waits until every lane has delivered the snapshot.
#[track_caller]
pub fn wait_live(gateway: &mut Gateway, limit: Duration) {
    gateway.wait_until("all lanes live", limit, |gateway| LANES.iter().all(|lane| is_live(gateway, lane)));
}
