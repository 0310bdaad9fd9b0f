//! librdkafka properties that are not the configuration's to set.

/// Properties that the gateway sets itself, with the reason or with what to use instead.
pub const RESERVED: [(&str, &str); 22] = [
    ("group.id", "use `source.group`"),
    ("auto.offset.reset", "use `source.start`"),
    ("enable.auto.commit", "an offset is committed when everything before it is finished"),
    ("auto.commit.enable", "an offset is committed when everything before it is finished"),
    ("auto.commit.interval.ms", "an offset is committed when everything before it is finished"),
    ("enable.auto.offset.store", "an offset is committed when everything before it is finished"),
    ("offset.store.method", "an offset is committed when everything before it is finished"),
    ("enable.partition.eof", "the end of a snapshot is known from the statistics"),
    ("statistics.interval.ms", "the end of a snapshot is known from the statistics"),
    ("partition.assignment.strategy", "lanes rebalance cooperatively"),
    ("isolation.level", "what an aborted transaction wrote is never delivered"),
    ("queued.max.messages.kbytes", "use `memory`, which is shared out among the lanes"),
    ("queued.min.messages", "use `memory`, which is shared out among the lanes"),
    ("consume.callback.max.messages", "records are read in batches"),
    ("rebalance_cb", "callbacks are not text"),
    ("offset_commit_cb", "callbacks are not text"),
    ("consume_cb", "callbacks are not text"),
    ("error_cb", "callbacks are not text"),
    ("log_cb", "callbacks are not text"),
    ("stats_cb", "callbacks are not text"),
    ("opaque", "callbacks are not text"),
    ("enable.sasl.oauthbearer.unsecure.jwt", "it is for development of librdkafka only"),
];

/// Whether the configuration may set `name`.
///
/// # Errors
/// The message, and after a line break what to do instead.
pub fn check_reserved(name: &str) -> Result<(), String> {
    match RESERVED.iter().find(|(reserved, _)| *reserved == name) {
        Some((_, instead)) => Err(format!("the property `{name}` is set by the gateway\n{instead}")),
        None => Ok(()),
    }
}
