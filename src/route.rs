//! One lane: a route and one of its sinks, from the source to the checkpoint.
