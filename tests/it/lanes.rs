//! Many lanes in one process, idle. Full size, two hundred: `make verify-lanes`.

use std::time::{Duration, Instant};

use super::harness::{Broker, Producer, Record, Site, Topic, sized};

const LIMIT: Duration = Duration::from_secs(600);
/// Threads of one lane: its poll thread, a worker, the sink's writer, and librdkafka's own three and one for each
/// connection to a broker.
const THREADS_PER_LANE: u64 = 12;
/// Threads of the process whatever its lanes.
const THREADS: u64 = 40;

#[test]
fn many_idle_lanes_cost_little_and_still_deliver() {
    let lanes = sized("TIDEGATE_LANES", 20, 200);
    let topic = Topic::compacted(Broker::shared(), 1);
    Producer::new(topic.broker).write(&topic, [Record::put("a", "1")]);
    let mut routes = String::from("routes:\n");
    for lane in 0..lanes {
        routes += &format!(
            "  r{lane}:
    source: {{ topics: [{name}], group: {name}.{lane} }}
    workers: 1
    sinks: {{ none-{lane}: {{ type: discard }} }}
",
            name = topic.name
        );
    }
    let memory = format!("{}MiB", 256 + lanes * 16);
    let site = Site::with_memory(topic.broker, &memory, &routes);
    let started = Instant::now();
    let mut gateway = site.start();
    gateway.wait_ready(LIMIT);
    let ready = started.elapsed();

    let (cpu, idle) = (gateway.process.cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(sized("TIDEGATE_IDLE_SECONDS", 3, 30)));
    let share = (gateway.process.cpu() - cpu).as_secs_f64() / idle.elapsed().as_secs_f64();
    let (threads, resident) = (gateway.process.threads(), gateway.process.resident() >> 20);
    println!(
        "{lanes} idle lanes: ready after {ready:.1?}, {threads} threads, {resident} MiB resident, {:.1} % of one core",
        share * 100.0
    );
    assert!(threads <= THREADS + lanes * THREADS_PER_LANE, "{threads} threads");
    assert!(share < 0.1 + lanes as f64 * 0.005, "{share} of a core for {lanes} idle lanes");

    Producer::new(topic.broker).write(&topic, [Record::put("a", "2")]);
    gateway.wait_until("a record through each lane", LIMIT, |gateway| {
        let routes = gateway.status().routes;
        routes.iter().flat_map(|route| &route.lanes).all(|lane| lane.counts.records_out == 2)
    });
    gateway.stop();
}
