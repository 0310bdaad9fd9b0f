//! The ids of topics: a topic that is deleted and made again under its name has another one. The safe binding does not ask
//! for them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka_sys as sys;

use super::context::Context;

/// Asks for the ids of `topics`. A topic that the broker does not know, or of which it may not speak, is left out; so are
/// all of them at a broker that is too old to have ids.
///
/// # Errors
/// When no broker answers within `limit`.
pub fn ask(
    consumer: &BaseConsumer<Context>,
    topics: &[String],
    limit: Duration,
) -> Result<BTreeMap<String, String>, RDKafkaErrorCode> {
    let names: Vec<CString> = topics.iter().filter_map(|topic| CString::new(topic.as_str()).ok()).collect();
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    let client = consumer.client().native_ptr();
    let mut reason: [c_char; 256] = [0; 256];
    // SAFETY: `client` lives as long as `consumer`, which outlives the call. `pointers` are of NUL-ended names that live in
    // `names`; librdkafka copies them. Queue, options, collection and event are made here and destroyed here, once each,
    // after their last use; what is read of the event is copied before. A null event is an answer that did not come.
    unsafe {
        let collection = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        let options =
            sys::rd_kafka_AdminOptions_new(client, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        sys::rd_kafka_AdminOptions_set_request_timeout(options, limit_ms, reason.as_mut_ptr(), reason.len());
        let queue = sys::rd_kafka_queue_new(client);
        sys::rd_kafka_DescribeTopics(client, collection, options, queue);
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_TopicCollection_destroy(collection);
        // librdkafka answers by its own limit; a little more, so that its word comes first.
        let event = sys::rd_kafka_queue_poll(queue, limit_ms.saturating_add(500));
        let answer = if event.is_null() { Err(RDKafkaErrorCode::OperationTimedOut) } else { read(event) };
        if !event.is_null() {
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_queue_destroy(queue);
        answer
    }
}

/// # Safety
/// `event` is a valid event that is not destroyed meanwhile.
unsafe fn read(event: *mut sys::rd_kafka_event_t) -> Result<BTreeMap<String, String>, RDKafkaErrorCode> {
    // SAFETY: by the caller's promise; what librdkafka points to lives as long as the event. Null is checked where the
    // documentation allows it.
    unsafe {
        match RDKafkaErrorCode::from(sys::rd_kafka_event_error(event)) {
            RDKafkaErrorCode::NoError => {}
            error @ (RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown) => return Err(error),
            _ => return Ok(BTreeMap::new()),
        }
        let result = sys::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() {
            return Ok(BTreeMap::new());
        }
        let mut count = 0;
        let descriptions = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        let mut found = BTreeMap::new();
        for index in 0..count {
            let description = *descriptions.add(index);
            let error = sys::rd_kafka_TopicDescription_error(description);
            let is_error = !error.is_null()
                && RDKafkaErrorCode::from(sys::rd_kafka_error_code(error)) != RDKafkaErrorCode::NoError;
            let id = sys::rd_kafka_TopicDescription_topic_id(description);
            let nothing = id.is_null()
                || (sys::rd_kafka_Uuid_most_significant_bits(id) == 0
                    && sys::rd_kafka_Uuid_least_significant_bits(id) == 0);
            if is_error || nothing {
                continue;
            }
            let text = sys::rd_kafka_Uuid_base64str(id);
            let name = sys::rd_kafka_TopicDescription_name(description);
            if !text.is_null() && !name.is_null() {
                let own = |text| CStr::from_ptr(text).to_string_lossy().into_owned();
                found.insert(own(name), own(text));
            }
        }
        Ok(found)
    }
}
