//! Which files are plugins, and why others are not.

use super::*;

#[track_caller]
fn refused(bytes: &[u8], reason: &str) {
    let dir = tempfile::tempdir().unwrap();
    let error = engine().load(&use_bytes(dir.path(), bytes)).err().expect("refused").to_string();
    assert!(error.contains(reason), "{error}");
}

#[track_caller]
fn refused_wat(text: &str, reason: &str) {
    refused(&wat::parse_str(text).unwrap(), reason);
}

#[test]
fn a_plugin_says_who_it_is() {
    let plugin = engine().load(&use_guest("identity.wasm", "{}")).unwrap();
    assert_eq!((plugin.name.as_str(), plugin.version.as_str()), ("identity", "0.1.0"));
    assert_eq!(plugin.digest.len(), 64);
    assert!(!plugin.summary.is_empty());
}

#[test]
fn what_is_no_component_is_refused_with_the_reason() {
    let whole = fs::read(guest("identity.wasm")).unwrap();
    refused(b"", "the file is empty");
    refused(b"PK\x03\x04 a zip file by mistake", "the file is not WebAssembly");
    refused(b"\0as", "the file is not WebAssembly");
    refused(&wat::parse_str("(module)").unwrap(), "the file is a core module; a component is expected");
    refused(&whole[..8], "it exports nothing; an export `tidegate:plugin/processor@1.0.0` is expected");
    for length in [9, 100, whole.len() / 2, whole.len() - 1] {
        refused(&whole[..length], "the file is not a valid component");
    }
}

/// Whatever single byte is damaged: the file is refused, or it is still a plugin.
#[test]
fn a_damaged_file_is_never_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(guest("hostile_describe_trap.wasm")).unwrap();
    let engine = engine();
    let mut refusals = 0;
    for step in 0..60 {
        let mut damaged = whole.clone();
        let place = step * (whole.len() / 60);
        damaged[place] ^= 0x55;
        refusals += usize::from(engine.load(&use_bytes(dir.path(), &damaged)).is_err());
    }
    assert!(refusals >= 50, "{refusals}");
}

#[test]
fn another_world_is_refused_by_what_is_wrong() {
    refused_wat("(component)", "it exports nothing; an export `tidegate:plugin/processor@1.0.0` is expected");
    refused_wat(
        r#"(component (component $c) (instance $i (instantiate $c)) (export "wasi:cli/run@0.2.0" (instance $i)))"#,
        "it exports `wasi:cli/run@0.2.0`; an export `tidegate:plugin/processor@1.0.0` is expected",
    );
    refused_wat(
        r#"(component (component $c) (instance $i (instantiate $c))
            (export "tidegate:plugin/processor@2.0.0" (instance $i)))"#,
        "it exports `tidegate:plugin/processor@2.0.0`; an export `tidegate:plugin/processor@1.0.0` is expected",
    );
    refused_wat(
        r#"(component (component $c) (instance $i (instantiate $c))
            (export "tidegate:plugin/processor@1.0.0" (instance $i)))"#,
        "`tidegate:plugin/processor@1.0.0` has no function `describe`",
    );
    refused_wat(
        r#"(component
            (core module $m (func (export "f") (result i32) i32.const 7))
            (core instance $m (instantiate $m))
            (func $f (result u32) (canon lift (core func $m "f")))
            (component $c (import "f" (func $f (result u32))) (export "describe" (func $f)))
            (instance $i (instantiate $c (with "f" (func $f))))
            (export "tidegate:plugin/processor@1.0.0" (instance $i)))"#,
        "the function `describe` of `tidegate:plugin/processor@1.0.0` is another",
    );
}

/// What happens before any function is called is within limits as well.
#[test]
fn a_start_that_does_not_end_is_cut() {
    let world =
        r#"(component $c) (instance $i (instantiate $c)) (export "tidegate:plugin/processor@1.0.0" (instance $i))"#;
    let start = |body: &str| {
        format!("(component (core module $m (func $f {body}) (start $f)) (core instance (instantiate $m)) {world})")
    };
    refused_wat(&start("call $f"), "`start` used up its stack");
    refused_wat(&start("(loop br 0)"), "`start` took longer than its limit of `2s`");
    let memory = "(core module $m (memory 2000)) (core instance (instantiate $m))";
    refused_wat(&format!("(component {memory} {world})"), "memory");
}

#[test]
fn imports_that_cannot_be_linked_are_named() {
    let exports = r#"(component $c) (instance $i (instantiate $c))
        (export "tidegate:plugin/processor@1.0.0" (instance $i))"#;
    refused_wat(
        &format!(
            r#"(component (import "acme:db/query@1.0.0" (instance (export "run" (func))))
                (import "acme:db/log@1.0.0" (instance)) {exports})"#
        ),
        "imports what the gateway does not offer: `acme:db/query@1.0.0`, `acme:db/log@1.0.0`",
    );
    refused_wat(
        &format!(
            r#"(component (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func)))) {exports})"#
        ),
        "wasi:http/outgoing-handler@0.2.0",
    );
    refused_wat(
        &format!(r#"(component (import "tidegate:plugin/host@1.0.0" (instance (export "shout" (func)))) {exports})"#),
        "tidegate:plugin/host@1.0.0",
    );
}

#[test]
fn a_digest_that_differs_is_refused_with_both() {
    let mut plugin = use_guest("identity.wasm", "{}");
    let digest = engine().load(&plugin).unwrap().digest;
    plugin.sha256 = Some(digest.clone());
    engine().load(&plugin).unwrap();
    plugin.sha256 = Some("0".repeat(64));
    let error = engine().load(&plugin).err().unwrap().to_string();
    assert!(error.contains(&digest) && error.contains(&"0".repeat(64)), "{error}");
}

#[test]
fn a_missing_file_is_told_with_its_path() {
    let error = engine().load(&use_file(Path::new("/nowhere/mask.wasm"), "{}")).err().unwrap().to_string();
    assert!(error.contains("cannot read `/nowhere/mask.wasm`"), "{error}");
}

#[test]
fn a_configuration_is_checked_by_the_schema_and_by_the_plugin() {
    let plugin = engine().load(&use_guest("mask_fields.wasm", "{}")).unwrap();
    plugin.configure(r#"{"fields": ["email"]}"#).unwrap();
    for config in ["{}", r#"{"fields": ["email"], "feilds": []}"#, r#"{"fields": []}"#, "not json"] {
        let error = plugin.configure(config).err().unwrap();
        assert!(matches!(error, tidegate::plugin::LoadError::Config(_)), "{config}: {error}");
    }
    let error = plugin.configure(r#"{"fields": [], "x": 1}"#).err().unwrap().to_string();
    assert!(error.contains("`fields`") && error.contains("unknown key `x`"), "{error}");
}

#[test]
fn more_memory_than_the_pool_gives_is_refused_beforehand() {
    let mut plugin = use_guest("identity.wasm", "{}");
    plugin.limits.memory = LIMITS.memory + 1;
    let error = engine().load(&plugin).err().unwrap().to_string();
    assert!(error.contains("67108865") && error.contains("67108864"), "{error}");
}

#[test]
fn more_instances_than_the_pool_has_are_refused_with_the_number() {
    let engine = engine();
    let plugins = vec![use_guest("identity.wasm", "{}"); 3];
    let benches: Vec<Bench> = (0..2).map(|_| Bench::on(&engine, &all_keys(), &plugins).unwrap()).collect();
    let chain = Chain::load(&engine, &all_keys(), &plugins).unwrap();
    let context = RunnerContext {
        route: "r".into(),
        sink: "s".into(),
        metrics: Metrics::new().lane("r", "s"),
        stop: Stop::new(),
    };
    let error = chain.open(context.clone()).err().unwrap().to_string();
    assert!(error.starts_with("`3` plugin instances are needed"), "{error}");
    assert!(error.ends_with("`6` of `8` are in use"), "{error}");
    drop(benches);
    chain.open(context).unwrap();
}

/// The only entry of a cache.
fn entry(dir: &Path) -> PathBuf {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.pop().unwrap()
}

#[test]
fn compiled_code_is_kept_and_damaged_code_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = use_guest("identity.wasm", "{}");
    engine_with_cache(Some(dir.path())).load(&plugin).unwrap();
    let path = entry(dir.path());
    let good = fs::read(&path).unwrap();

    let kept = fs::metadata(&path).unwrap().modified().unwrap();
    engine_with_cache(Some(dir.path())).load(&plugin).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), kept, "what is sound is not written again");

    let truncated = good[..good.len() / 2].to_vec();
    let mut flipped = good.clone();
    flipped[good.len() / 3] ^= 1;
    for damaged in [truncated, flipped, b"something else".to_vec(), Vec::new()] {
        fs::write(&path, damaged).unwrap();
        let mut bench =
            Bench::on(&engine_with_cache(Some(dir.path())), &all_keys(), std::slice::from_ref(&plugin)).unwrap();
        assert_eq!(rejected(&bench.run(batch(["a"]))), []);
        assert!(entry(dir.path()) == path && fs::read(&path).unwrap().len() == good.len(), "it was replaced");
    }
}
