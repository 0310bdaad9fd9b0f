//! The data queue: records in batches, straight from librdkafka. All `unsafe` of the Kafka source is here and in
//! `topic_id`.
//!
//! `rd_kafka_consume_batch_queue` costs half of what `BaseConsumer::poll` does per record. The queues of the assigned
//! partitions are forwarded to one queue of our own, so that `BaseConsumer::poll` returns events and never a record. What
//! librdkafka may prefetch is bounded over all partitions then, since the bound is checked against the queue forwarded to.

use std::ffi::{CStr, CString};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::RDKafkaRespErr;
use rdkafka_sys as sys;

use super::context::Context;
use crate::record::{Batch, NULL};

/// Records taken from librdkafka per call. More gains nothing.
pub const CALL_RECORDS: usize = 1000;

/// The queue, with the messages that were taken from it and not yet handed over.
pub struct DataQueue {
    queue: *mut sys::rd_kafka_queue_t,
    /// Messages `next..filled` are ours and not yet destroyed.
    messages: Box<[*mut sys::rd_kafka_message_t]>,
    next: usize,
    filled: usize,
    /// Outlives the queue and the messages: fields are dropped after `Drop::drop`.
    consumer: Arc<BaseConsumer<Context>>,
}

// SAFETY: the pointers are owned by this value alone, and librdkafka's queues and messages may be used from any thread.
unsafe impl Send for DataQueue {}

impl DataQueue {
    pub fn new(consumer: Arc<BaseConsumer<Context>>) -> Self {
        // SAFETY: the client is alive, and `consumer` keeps it so for as long as the queue is.
        let queue = unsafe { sys::rd_kafka_queue_new(consumer.client().native_ptr()) };
        Self { queue, messages: vec![ptr::null_mut(); CALL_RECORDS].into(), next: 0, filled: 0, consumer }
    }

    /// Sends what is fetched of a partition from now on here. To be called before each assignment of it: librdkafka ends
    /// the forwarding when the partition goes, and does not send it anywhere once an application has.
    pub fn forward(&self, topic: &str, partition: i32) -> anyhow::Result<()> {
        let name = CString::new(topic).with_context(|| format!("topic `{topic}` holds a zero byte"))?;
        // SAFETY: the client is alive and `name` ends with a zero byte.
        let source =
            unsafe { sys::rd_kafka_queue_get_partition(self.consumer.client().native_ptr(), name.as_ptr(), partition) };
        anyhow::ensure!(!source.is_null(), "librdkafka has no queue for `{topic}[{partition}]`");
        // SAFETY: both queues are alive; forwarding keeps a reference of its own, so that ours may go.
        unsafe {
            sys::rd_kafka_queue_forward(source, self.queue);
            sys::rd_kafka_queue_destroy(source);
        }
        Ok(())
    }

    /// Takes up to `limit` messages. Waits up to `wait` for the first `limit` of them: give 1 to wait for any.
    pub fn fill(&mut self, limit: usize, wait: Duration) {
        if self.next < self.filled {
            return;
        }
        let limit = limit.min(CALL_RECORDS);
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive and `messages` has room for `limit` pointers.
        let filled = unsafe { sys::rd_kafka_consume_batch_queue(self.queue, wait, self.messages.as_mut_ptr(), limit) };
        (self.next, self.filled) = (0, usize::try_from(filled).unwrap_or_default());
    }

    /// The message that [`DataQueue::advance`] will destroy.
    pub fn peek(&self) -> Option<Message<'_>> {
        self.at(self.next)
    }

    /// How many messages of the same partition follow one another from [`DataQueue::peek`] on, up to `limit`, and the
    /// bytes of their keys and values.
    pub fn run(&self, limit: usize) -> (usize, usize) {
        let Some(first) = self.peek() else { return (0, 0) };
        (self.next..self.filled)
            .take(limit)
            .map_while(|index| self.at(index))
            .take_while(|message| message.place() == first.place() && message.error().is_none())
            .fold((0, 0), |(records, bytes), message| (records + 1, bytes + message.bytes()))
    }

    /// Destroys the message that was peeked at.
    pub fn advance(&mut self) {
        if self.next < self.filled {
            // SAFETY: the message is ours, was not destroyed before, and is not reached again.
            unsafe { sys::rd_kafka_message_destroy(self.messages[self.next]) };
            self.next += 1;
        }
    }

    /// Destroys what was taken and not handed over.
    pub fn clear(&mut self) {
        while self.next < self.filled {
            self.advance();
        }
    }

    fn at(&self, index: usize) -> Option<Message<'_>> {
        if !(self.next..self.filled).contains(&index) {
            return None;
        }
        // SAFETY: librdkafka filled this place, and the message lives until `advance`, which needs `&mut self`.
        Some(Message(unsafe { &*self.messages[index] }))
    }
}

impl Drop for DataQueue {
    fn drop(&mut self) {
        self.clear();
        // SAFETY: the queue is ours and not used after this. Partitions that still forward to it hold references.
        unsafe { sys::rd_kafka_queue_destroy(self.queue) };
    }
}

/// Commits, and has the answer come as an event of the consumer's queue, to
/// [`commit_callback`](rdkafka::consumer::ConsumerContext::commit_callback). rdkafka's own asynchronous commit gets no
/// answer at all, and its synchronous one waits without a limit.
///
/// # Errors
/// When librdkafka does not take the commit; then no answer comes.
pub fn commit(consumer: &BaseConsumer<Context>, offsets: &TopicPartitionList) -> KafkaResult<()> {
    let client = consumer.client().native_ptr();
    // SAFETY: the client is alive. The list is copied, the queue is kept by the request for as long as it needs it, so that
    // ours may go; no callback is given.
    let code = unsafe {
        let events = sys::rd_kafka_queue_get_consumer(client);
        if events.is_null() {
            return Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::UnknownGroup));
        }
        let code = sys::rd_kafka_commit_queue(client, offsets.ptr(), events, None, ptr::null_mut());
        sys::rd_kafka_queue_destroy(events);
        code
    };
    match code {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        code => Err(KafkaError::ConsumerCommit(code.into())),
    }
}

/// One message: a record, or what librdkafka has to say of a partition.
#[derive(Clone, Copy)]
pub struct Message<'a>(&'a sys::rd_kafka_message_t);

impl<'a> Message<'a> {
    /// The partition as librdkafka knows it: equal for messages of one partition while one of them is alive.
    pub fn place(self) -> (usize, i32) {
        (self.0.rkt as usize, self.0.partition)
    }

    pub fn topic(self) -> &'a str {
        if self.0.rkt.is_null() {
            return "";
        }
        // SAFETY: a message keeps its topic alive, and a topic its name, which ends with a zero byte.
        unsafe { CStr::from_ptr(sys::rd_kafka_topic_name(self.0.rkt)) }.to_str().unwrap_or_default()
    }

    pub fn partition(self) -> i32 {
        self.0.partition
    }

    /// Of an end-of-partition message: the offset of the end.
    pub fn offset(self) -> i64 {
        self.0.offset
    }

    pub fn error(self) -> Option<RDKafkaErrorCode> {
        (self.0.err != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| self.0.err.into())
    }

    /// What librdkafka says of an error.
    pub fn error_text(self) -> String {
        // SAFETY: the text of a message with an error lives as long as the message and ends with a zero byte.
        let text = unsafe { sys::rd_kafka_message_errstr(self.0) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: see above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Bytes of key and value.
    pub fn bytes(self) -> usize {
        self.0.key_len + self.0.len
    }

    /// Appends the record to `batch`; returns its bytes, headers included.
    pub fn push_to(self, batch: &mut Batch) -> usize {
        let start = batch.data_bytes();
        batch.push(self.0.offset, self.timestamp(), self.key(), self.value());
        self.push_headers(batch);
        batch.data_bytes() - start
    }

    fn key(self) -> Option<&'a [u8]> {
        // SAFETY: librdkafka gives a null pointer for null, else `key_len` bytes that live as long as the message.
        unsafe { bytes(self.0.key, self.0.key_len) }
    }

    fn value(self) -> Option<&'a [u8]> {
        // SAFETY: as for the key.
        unsafe { bytes(self.0.payload, self.0.len) }
    }

    fn timestamp(self) -> i64 {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is alive and `kind` is written to.
        let timestamp = unsafe { sys::rd_kafka_message_timestamp(self.0, &mut kind) };
        match kind {
            sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE => i64::from(NULL),
            _ => timestamp,
        }
    }

    fn push_headers(self, batch: &mut Batch) {
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive; the headers are its own and live as long.
        if unsafe { sys::rd_kafka_message_headers(self.0, &mut headers) } != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            return;
        }
        for index in 0.. {
            let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
            // SAFETY: `headers` is alive and the three places are written to when there is a header of that index.
            let found = unsafe { sys::rd_kafka_header_get_all(headers, index, &mut name, &mut value, &mut length) };
            if found != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                return;
            }
            // SAFETY: a header's name ends with a zero byte, and both live as long as the message.
            let (name, value) = unsafe { (CStr::from_ptr(name).to_bytes(), bytes(value, length)) };
            batch.push_header(name, value);
        }
    }
}

/// `None` for a null pointer, else the `length` bytes there, none included.
///
/// # Safety
/// A `data` that is not null must point to `length` bytes that live for `'a`.
unsafe fn bytes<'a>(data: *const std::ffi::c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!data.is_null()).then(|| unsafe { slice::from_raw_parts(data.cast(), length) })
}
