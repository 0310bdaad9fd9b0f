//! Minimum, median and maximum of each case, and its ratio to the raw consumer of the same run.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::child::Ended;

#[derive(Clone, Copy)]
pub struct Sample {
    records_per_s: f64,
    cpu_ns_per_record: f64,
    rss_mib: f64,
}

impl Sample {
    /// `said` holds `records` and `seconds`, from the first record to the last one delivered.
    pub fn new(said: &Value, ended: &Ended) -> anyhow::Result<Self> {
        let number = |name| said.get(name).and_then(Value::as_f64).with_context(|| format!("no `{name}` in {said}"));
        let records = number("records")?;
        Ok(Self {
            records_per_s: records / number("seconds")?,
            cpu_ns_per_record: ended.cpu_seconds * 1e9 / records,
            rss_mib: ended.peak_rss_mib,
        })
    }
}

struct Case {
    sink: String,
    chain: String,
    samples: Vec<Sample>,
}

/// In the order in which cases came first; the first is the yardstick.
pub struct Report {
    records: u64,
    rounds: u64,
    cases: Vec<Case>,
}

impl Report {
    pub fn new(records: u64, rounds: u64) -> Self {
        Self { records, rounds, cases: Vec::new() }
    }

    pub fn add(&mut self, sink: &str, chain: &str, sample: Sample) {
        eprintln!("  {sink:12} {chain:31} {:7.0} thousand records/s", sample.records_per_s / 1e3);
        match self.cases.iter_mut().find(|case| case.sink == sink && case.chain == chain) {
            Some(case) => case.samples.push(sample),
            None => {
                let (sink, chain) = (sink.to_owned(), chain.to_owned());
                self.cases.push(Case { sink, chain, samples: vec![sample] });
            }
        }
    }

    /// In Markdown, as the README quotes it.
    pub fn table(&self) -> String {
        let yardstick = self.cases.first().map(|case| (case.rate()[1], case.cpu()[1]));
        let mut text = format!(
            "{} records, {} rounds, minimum / **median** / maximum; ratios are of medians, to the raw consumer.\n\n\
             | sink | plugins | thousand records/s | rate ratio | CPU ns a record | CPU ratio | RSS MiB |\n\
             |---|---|---|---|---|---|---|\n",
            self.records, self.rounds
        );
        for case in &self.cases {
            let (rate, cpu) = (case.rate(), case.cpu());
            let (rate_ratio, cpu_ratio) =
                yardstick.map_or((1.0, 1.0), |(raw_rate, raw_cpu)| (rate[1] / raw_rate, cpu[1] / raw_cpu));
            writeln!(
                text,
                "| {} | {} | {:.0} / **{:.0}** / {:.0} | {rate_ratio:.2} | {:.0} / **{:.0}** / {:.0} | {cpu_ratio:.2} | {:.0} |",
                case.sink,
                case.chain,
                rate[0] / 1e3,
                rate[1] / 1e3,
                rate[2] / 1e3,
                cpu[0],
                cpu[1],
                cpu[2],
                case.rss(),
            )
            .expect("a string takes everything");
        }
        text
    }

    /// A list of `{case, system, records_per_s: {min, median, max}, cpu_ns_per_record, rss_mib}`.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        let results: Vec<Value> = self
            .cases
            .iter()
            .map(|case| {
                let [min, median, max] = case.rate();
                let is_raw = case.chain.is_empty();
                json!({
                    "case": if is_raw { "consume".to_owned() } else { format!("{} → {}", case.chain, case.sink) },
                    "system": if is_raw { "raw consumer" } else { "tidegate" },
                    "records_per_s": { "min": min, "median": median, "max": max },
                    "cpu_ns_per_record": case.cpu()[1],
                    "rss_mib": case.rss(),
                })
            })
            .collect();
        std::fs::create_dir_all(file.parent().context("a file in a folder")?)?;
        std::fs::write(file, serde_json::to_string_pretty(&results)?)?;
        Ok(())
    }
}

impl Case {
    fn rate(&self) -> [f64; 3] {
        spread(self.samples.iter().map(|sample| sample.records_per_s))
    }

    fn cpu(&self) -> [f64; 3] {
        spread(self.samples.iter().map(|sample| sample.cpu_ns_per_record))
    }

    fn rss(&self) -> f64 {
        spread(self.samples.iter().map(|sample| sample.rss_mib))[1]
    }
}

/// Minimum, median, maximum.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}
