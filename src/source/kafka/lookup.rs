//! Questions to the broker that take a round trip, asked on a thread of their own so that the poll thread never waits.
//!
//! Each question is repeated until it is answered; each attempt has a limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use super::context::{self, Context};
use super::settings::METADATA_INTERVAL;
use super::topic_id;
use crate::freshness::DEFAULT_RETENTION;
use crate::record::{NextOffset, TopicPartition};
use crate::source::PartitionLog;

/// How long one question may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(3);

/// The topic's setting that says for how long tombstones are kept.
const RETENTION: &str = "delete.retention.ms";

/// Between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Questions and answers in flight; further ones wait on their side.
const QUEUE: usize = 64;

pub enum Question {
    /// Where these partitions begin and end now.
    Ends(Vec<TopicPartition>),
    /// Whether the lane is new, and then where these partitions end: the start of `latest`.
    Latest { partitions: Vec<TopicPartition>, ask_group: bool },
    /// What stands in these partitions' logs. One that opens an assignment is asked again until it is answered; any other
    /// is answered with nothing when the broker does not answer.
    Survey { partitions: Vec<TopicPartition>, opens: bool },
    /// The topics, soon rather than at the next turn.
    Topics,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Ends {
        partition: TopicPartition,
        low: i64,
        end: NextOffset,
    },
    /// Where each partition that was asked about begins; the others begin where the group says.
    Latest(Vec<(TopicPartition, NextOffset)>),
    /// A partition that does not exist is left out.
    Survey {
        logs: Vec<PartitionLog>,
        opens: bool,
    },
    Topics(Topics),
    Unreachable(String),
    Warning(String),
}

/// What the broker says of the topics that were configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    pub partitions: BTreeSet<TopicPartition>,
    pub missing: Vec<String>,
    /// Why topics that may exist cannot be read.
    pub refused: Option<String>,
}

pub struct Lookup {
    questions: Sender<Question>,
    pub answers: Receiver<Answer>,
}

pub struct Settings {
    pub topics: Vec<String>,
    pub group: String,
    /// For a client that asks for the topics' `cleanup.policy`; `None` = do not ask.
    pub inspect: Option<ClientConfig>,
    /// Whether new partitions are looked for while all is well; a group does so itself.
    pub discover: bool,
}

impl Lookup {
    /// Starts the thread. It ends when the value is dropped, after the attempt under way.
    pub fn start(consumer: Arc<BaseConsumer<Context>>, settings: Settings) -> std::io::Result<Self> {
        let (questions, inlet) = bounded(QUEUE);
        let (outlet, answers) = bounded(QUEUE);
        let topics_due = Some(Instant::now());
        let (ends, inspected) = (BTreeSet::new(), BTreeSet::new());
        let worker = Worker {
            consumer,
            settings,
            inlet,
            outlet,
            ends,
            latest: None,
            opening: None,
            survey: None,
            retentions: BTreeMap::new(),
            topics_due,
            inspected,
        };
        thread::Builder::new().name("kafka-lookup".to_owned()).spawn(|| worker.run())?;
        Ok(Self { questions, answers })
    }

    /// Returns whether there was room for the question.
    pub fn ask(&self, question: Question) -> bool {
        match self.questions.try_send(question) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

struct Worker {
    consumer: Arc<BaseConsumer<Context>>,
    settings: Settings,
    inlet: Receiver<Question>,
    outlet: Sender<Answer>,
    /// Not yet answered.
    ends: BTreeSet<TopicPartition>,
    latest: Option<(Vec<TopicPartition>, bool)>,
    opening: Option<Vec<TopicPartition>>,
    survey: Option<Vec<TopicPartition>>,
    /// Of the topics that are assigned, as they were when they were assigned.
    retentions: BTreeMap<String, Duration>,
    /// When to ask for the topics; `None` = when told to.
    topics_due: Option<Instant>,
    /// Topics whose settings were asked for.
    inspected: BTreeSet<String>,
}

impl Worker {
    /// Ends when the other side is gone.
    fn run(mut self) {
        let mut retry = Instant::now();
        loop {
            let retry_due = (!self.ends.is_empty() || self.latest.is_some() || self.opening.is_some()).then_some(retry);
            let received = match [retry_due, self.topics_due].into_iter().flatten().min() {
                Some(due) => self.inlet.recv_deadline(due),
                None => self.inlet.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok(question) => {
                    self.note(question);
                    while let Ok(question) = self.inlet.try_recv() {
                        self.note(question);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.attempt().is_err() {
                return;
            }
            retry = Instant::now() + RETRY_INTERVAL;
        }
    }

    fn note(&mut self, question: Question) {
        match question {
            Question::Ends(partitions) => self.ends.extend(partitions),
            Question::Latest { partitions, ask_group } => self.latest = Some((partitions, ask_group)),
            Question::Survey { partitions, opens: true } => self.opening = Some(partitions),
            Question::Survey { partitions, opens: false } => self.survey = Some(partitions),
            Question::Topics => self.topics_due = Some(Instant::now()),
        }
    }

    /// Tries everything that is open once.
    fn attempt(&mut self) -> Result<(), Gone> {
        if self.topics_due.is_some_and(|due| due <= Instant::now()) {
            self.topics()?;
        }
        if let Some((partitions, ask_group)) = self.latest.take() {
            match self.resolve(&partitions, ask_group) {
                Ok(starts) => send(&self.outlet, Answer::Latest(starts))?,
                Err(error) => {
                    tracing::debug!(%error, group = self.settings.group, "the start is not known yet");
                    self.latest = Some((partitions, ask_group));
                }
            }
        }
        if let Some(partitions) = self.opening.take() {
            self.retentions.clear();
            match self.look(&partitions) {
                Ok(logs) => send(&self.outlet, Answer::Survey { logs, opens: true })?,
                Err(error) => {
                    tracing::debug!(%error, group = self.settings.group, "the logs are not known yet");
                    self.opening = Some(partitions);
                }
            }
        }
        if let Some(partitions) = self.survey.take() {
            let logs = self.look(&partitions).unwrap_or_else(|error| {
                tracing::debug!(%error, group = self.settings.group, "the logs are not known now");
                Vec::new()
            });
            send(&self.outlet, Answer::Survey { logs, opens: false })?;
        }
        for partition in std::mem::take(&mut self.ends) {
            match self.consumer.fetch_watermarks(&partition.topic, partition.partition, ATTEMPT_LIMIT) {
                Ok((low, end)) => send(&self.outlet, Answer::Ends { partition, low, end: NextOffset(end) })?,
                Err(error) => {
                    tracing::debug!(%error, %partition, "the end is not known yet");
                    self.ends.insert(partition);
                }
            }
        }
        Ok(())
    }

    fn topics(&mut self) -> Result<(), Gone> {
        let answer = self.ask_topics();
        let healthy = answer.as_ref().is_ok_and(|topics| topics.missing.is_empty() && topics.refused.is_none());
        let pause = match (healthy, self.settings.discover) {
            (false, _) => Some(RETRY_INTERVAL),
            (true, true) => Some(METADATA_INTERVAL),
            (true, false) => None,
        };
        self.topics_due = pause.map(|pause| Instant::now() + pause);
        match answer {
            Ok(topics) => {
                self.inspect(&topics);
                send(&self.outlet, Answer::Topics(topics))
            }
            Err(error) => send(&self.outlet, Answer::Unreachable(error.to_string())),
        }
    }

    fn ask_topics(&self) -> KafkaResult<Topics> {
        let mut found = Topics::default();
        for name in &self.settings.topics {
            let metadata = self.consumer.fetch_metadata(Some(name), ATTEMPT_LIMIT)?;
            let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else { continue };
            match topic.error() {
                None => {
                    let shared: Arc<str> = name.as_str().into();
                    let partitions = topic.partitions().iter().map(|p| TopicPartition::new(shared.clone(), p.id()));
                    found.partitions.extend(partitions);
                }
                Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => found.missing.push(name.clone()),
                Some(error) => {
                    let error = RDKafkaErrorCode::from(error);
                    found.refused = Some(format!("topic `{name}`: {error}"));
                }
            }
        }
        Ok(found)
    }

    /// A group that has committed anything for these topics is not new: what is not committed then are partitions that
    /// appeared while nobody looked, and they are read from their beginning.
    fn resolve(
        &self,
        partitions: &[TopicPartition],
        ask_group: bool,
    ) -> KafkaResult<Vec<(TopicPartition, NextOffset)>> {
        if ask_group {
            let mut list = TopicPartitionList::new();
            for partition in self.ask_topics()?.partitions.iter().chain(partitions) {
                if list.find_partition(&partition.topic, partition.partition).is_none() {
                    list.add_partition(&partition.topic, partition.partition);
                }
            }
            let committed = self.consumer.committed_offsets(list, ATTEMPT_LIMIT)?;
            for element in committed.elements() {
                element.error()?;
                if matches!(element.offset(), Offset::Offset(_)) {
                    return Ok(Vec::new());
                }
            }
        }
        let ends = partitions.iter().map(|partition| {
            let (_, end) = self.consumer.fetch_watermarks(&partition.topic, partition.partition, ATTEMPT_LIMIT)?;
            Ok((partition.clone(), NextOffset(end)))
        });
        ends.collect()
    }

    /// Asks what stands in the logs. The ids come first: a topic that is re-created meanwhile has the older one beside its
    /// new ends, and the next look tells.
    fn look(&mut self, partitions: &[TopicPartition]) -> KafkaResult<Vec<PartitionLog>> {
        let names: BTreeSet<String> = partitions.iter().map(|partition| partition.topic.to_string()).collect();
        let names: Vec<String> = names.into_iter().collect();
        let mut ids = BTreeMap::new();
        if let Some(config) = &self.settings.inspect {
            ids = topic_id::ask(&self.consumer, &names, ATTEMPT_LIMIT).map_err(KafkaError::MetadataFetch)?;
            if !names.iter().all(|name| self.retentions.contains_key(name)) {
                let settings = topic_settings(config, &names, RETENTION).unwrap_or_else(|error| {
                    tracing::debug!(%error, "the topics' `delete.retention.ms` is not known");
                    Vec::new()
                });
                for (name, value) in settings {
                    self.retentions.extend(value.parse().ok().map(|ms| (name, Duration::from_millis(ms))));
                }
            }
        }
        for name in names {
            self.retentions.entry(name).or_insert(DEFAULT_RETENTION);
        }
        let mut logs = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let asked = Instant::now();
            match self.consumer.fetch_watermarks(&partition.topic, partition.partition, ATTEMPT_LIMIT) {
                Ok((low, end)) => logs.push(PartitionLog {
                    partition: partition.clone(),
                    topic_id: ids.get(&*partition.topic).cloned(),
                    low,
                    end: NextOffset(end),
                    asked,
                    retention: self.retentions.get(&*partition.topic).copied().unwrap_or(DEFAULT_RETENTION),
                }),
                Err(error)
                    if matches!(
                        error.rdkafka_error_code(),
                        Some(
                            RDKafkaErrorCode::UnknownTopicOrPartition
                                | RDKafkaErrorCode::UnknownTopic
                                | RDKafkaErrorCode::UnknownPartition
                        )
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(logs)
    }

    /// Looks once at the `cleanup.policy` of each topic, in the background: it is advice, and the client that asks for it
    /// is another one.
    fn inspect(&mut self, topics: &Topics) {
        let Some(config) = self.settings.inspect.clone() else { return };
        let names: BTreeSet<_> = topics.partitions.iter().map(|partition| partition.topic.to_string()).collect();
        let news: Vec<_> = names.difference(&self.inspected).cloned().collect();
        if news.is_empty() {
            return;
        }
        self.inspected.extend(news.iter().cloned());
        let outlet = self.outlet.clone();
        let spawned = thread::Builder::new().name("kafka-inspect".to_owned()).spawn(move || {
            for warning in warnings(&config, &news) {
                if send(&outlet, Answer::Warning(warning)).is_err() {
                    return;
                }
            }
        });
        if let Err(error) = spawned {
            tracing::debug!(%error, "no thread to look at the topics' settings");
        }
    }
}

/// The poll thread is gone.
struct Gone;

fn send(outlet: &Sender<Answer>, answer: Answer) -> Result<(), Gone> {
    outlet.send(answer).map_err(|_| Gone)
}

/// Topics of which older versions are never removed. No answer, or no right to ask, is no warning.
fn warnings(config: &ClientConfig, topics: &[String]) -> Vec<String> {
    topic_settings(config, topics, "cleanup.policy")
        .unwrap_or_else(|error| {
            tracing::debug!(%error, "the topics' cleanup policies are not known");
            Vec::new()
        })
        .into_iter()
        .filter(|(_, policy)| !policy.split(',').any(|part| part.trim() == "compact"))
        .map(|(topic, policy)| {
            format!("topic `{topic}` is not compacted (`cleanup.policy` is `{policy}`): older keys may be gone from it")
        })
        .collect()
}

/// The setting `name` of each topic that has it.
fn topic_settings(config: &ClientConfig, topics: &[String], name: &str) -> anyhow::Result<Vec<(String, String)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let admin = AdminClient::from_config_and_context(config, Quiet)?;
    let options = AdminOptions::new().request_timeout(Some(ATTEMPT_LIMIT));
    let resources: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let answers = runtime.block_on(async {
        tokio::time::timeout(ATTEMPT_LIMIT * 2, admin.describe_configs(&resources, &options)).await
    })??;
    let values = topics.iter().zip(answers).filter_map(|(topic, answer)| {
        let value = answer.ok()?.get(name)?.value.clone()?;
        Some((topic.clone(), value))
    });
    Ok(values.collect())
}

/// The lane's own client already says what is wrong with the connection.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        context::log(RDKafkaLogLevel::Debug, facility, message, "");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka admin client error");
    }
}
