use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::gateway::status::samples;

/// Everything that can be exposed, with a sample of each.
fn populated() -> String {
    let metrics = Metrics::new();
    let lane = metrics.lane("profiles", "read_model");
    lane.error(ErrorKind::PluginTimeout);
    lane.plugin_count("mask", "masked", 3);
    lane.records_in.inc_by(7);
    metrics.refresh(&samples::status(vec![samples::lane("read_model", LaneState::Live, 15, 20)]));
    metrics.encode().expect("a string takes everything")
}

#[test]
fn the_list_of_metrics_changes_only_on_purpose() {
    let text = populated();
    let lines = text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
    golden("tests/golden/metrics.txt", &lines.collect::<String>());
}

#[test]
fn the_reference_page_is_what_is_exposed() {
    golden("docs/reference/metrics.md", &reference(&populated()));
}

#[test]
fn a_sample_has_its_labels_and_its_value() {
    let text = populated();
    for line in [
        r#"tidegate_records_in_total{route="profiles",sink="read_model"} 7"#,
        r#"tidegate_errors_total{route="profiles",sink="read_model",kind="plugin_timeout"} 1"#,
        r#"tidegate_lag_records{route="profiles",sink="read_model",topic="user-profiles",partition="0"} 5"#,
        r#"tidegate_snapshot_passed_offsets{route="profiles",sink="read_model"} 15"#,
        "tidegate_memory_budget_bytes 268435456",
        "tidegate_memory_resident_bytes 88080384",
    ] {
        assert!(text.lines().any(|seen| seen == line), "`{line}` is not in\n{text}");
    }
}

#[test]
fn a_partition_that_went_has_no_lag_of_ours() {
    let metrics = Metrics::new();
    let mut status = samples::status(vec![samples::lane("a", LaneState::Live, 15, 20)]);
    metrics.refresh(&status);
    assert!(metrics.encode().unwrap().contains("tidegate_lag_records{"));
    status.routes[0].lanes[0].partitions.clear();
    metrics.refresh(&status);
    assert!(!metrics.encode().unwrap().contains("tidegate_lag_records{"));
}

#[test]
fn a_lag_that_is_not_known_is_absent_and_not_zero() {
    let metrics = Metrics::new();
    let mut lane = samples::lane("a", LaneState::Starting, 15, 20);
    lane.partitions[0].lag = None;
    metrics.refresh(&samples::status(vec![lane]));
    let text = metrics.encode().unwrap();
    assert!(!text.contains("tidegate_lag_records{"), "{text}");
    assert!(text.contains("tidegate_finished_offset{"), "{text}");
}

#[test]
fn each_kind_of_error_has_its_own_label() {
    let kinds = [
        ErrorKind::Key,
        ErrorKind::PluginReject,
        ErrorKind::PluginTrap,
        ErrorKind::PluginTimeout,
        ErrorKind::PluginMemory,
        ErrorKind::PluginVerdict,
        ErrorKind::PluginOther,
        ErrorKind::SinkTransient,
        ErrorKind::SinkPermanent,
        ErrorKind::Source,
        ErrorKind::Commit,
        ErrorKind::DeadLetter,
    ];
    let metrics = Metrics::new();
    let lane = metrics.lane("r", "s");
    kinds.into_iter().for_each(|kind| lane.error(kind));
    let text = metrics.encode().unwrap();
    let labels: BTreeSet<_> = text.lines().filter(|line| line.starts_with("tidegate_errors_total{")).collect();
    assert_eq!(labels.len(), kinds.len(), "{text}");
    assert!(labels.iter().all(|line| line.ends_with(" 1")), "{text}");
}

/// The page of the user guide.
fn reference(exposition: &str) -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from the registry: UPDATE_GOLDEN=1 cargo test metrics -->\n\n\
         `GET /metrics` answers in OpenMetrics text. Counters start at 0 with the process. Partition gauges exist for the\n\
         partitions that the instance holds now; what is not known is absent.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    let mut help = "";
    let mut lines = exposition.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("a help text").1;
        }
        let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else { continue };
        let sample = lines.peek().expect("a sample follows its type");
        let name = sample.split(['{', ' ']).next().expect("a name");
        let labels: Vec<_> = sample
            .split_once('{')
            .map(|(_, rest)| rest.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name).collect())
            .unwrap_or_default();
        page.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
    }
    page
}

/// Compares with a committed file, or writes it when `UPDATE_GOLDEN` is set.
fn golden(path: &str, actual: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, actual).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(actual, expected, "`{path}` differs; if that is meant, run again with UPDATE_GOLDEN=1");
}
