//! The settings that the first process passes to the other parts, before anything from outside. They have nothing about the
//! delivery: neither headers nor tokens nor keys.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::{
    cgroup::Ownership,
    environment::Environment,
    kernel::{
        LoadOptions,
        constant::Constant,
        counters::{Events, Wanted},
        hooks::Hook,
        host::Host,
        memory::{MapSize, Sizing},
    },
    logging,
    options::AttachKind,
    reader::Places,
    signals::every_hook,
};

/// The settings of all parts, for the supervisor.
#[derive(Serialize, Deserialize)]
pub struct Orders {
    /// The settings of the log.
    pub log: Log,
    /// The settings of the loader.
    pub loader: LoaderOrder,
    /// The settings of each reader.
    pub reader: Places,
}

/// The variables of the environment that determine the log, with their values.
#[derive(Serialize, Deserialize)]
pub struct Log(Vec<(String, String)>);

impl Log {
    /// Reads the variables.
    pub fn of(environment: Environment<'_>) -> Self {
        let read = |name: &&str| environment(name).map(|value| ((*name).to_owned(), value));
        Self(logging::VARIABLES.iter().filter_map(read).collect())
    }

    /// Starts the log of this process.
    pub fn start(&self) {
        let variable = |name: &str| self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        // The first process has warned of invalid values.
        logging::install(&variable, io::stderr);
    }
}

/// The settings of the loader.
#[derive(Serialize, Deserialize)]
pub struct LoaderOrder {
    /// The kernel.
    pub host: Host,
    sizing: Sizing,
    constants: Vec<Constant>,
    maps: Vec<MapSize>,
    hooks: Vec<String>,
    functions: Vec<String>,
    ownership: Option<Ownership>,
    avoid: Vec<AttachKind>,
    classified: Vec<String>,
    counters: Option<Wanted>,
    interrupts: Events,
    counter_hooks: Vec<String>,
    siblings: Vec<Option<u32>>,
}

impl LoaderOrder {
    /// Returns the settings for loading the programs.
    pub fn new(host: Host, options: LoadOptions<'_>) -> Self {
        let names = |hooks: &[&Hook]| hooks.iter().map(|hook| full_name(hook)).collect();
        Self {
            host,
            sizing: options.sizing,
            constants: options.constants,
            maps: options.maps,
            hooks: names(options.hooks),
            functions: options.functions.to_vec(),
            ownership: options.ownership,
            avoid: options.avoid.to_vec(),
            classified: options.classified.to_vec(),
            counters: options.counters,
            interrupts: options.interrupts,
            counter_hooks: names(options.counter_hooks),
            siblings: options.siblings,
        }
    }

    /// Returns the hooks to attach, and those among them that only the processor's counters need.
    ///
    /// # Errors
    /// If another version of the program sent the settings.
    pub fn hooks(&self) -> Result<[Vec<&'static Hook>; 2], UnknownHook> {
        let all = every_hook();
        let named = |name: &String| {
            all.iter().copied().find(|hook| full_name(hook) == *name).ok_or_else(|| UnknownHook(name.clone()))
        };
        let named = |names: &[String]| names.iter().map(named).collect::<Result<_, _>>();
        Ok([named(&self.hooks)?, named(&self.counter_hooks)?])
    }

    /// Returns the settings for loading the programs of these [hooks](Self::hooks).
    pub fn options<'a>(&'a self, [hooks, counter_hooks]: &'a [Vec<&'static Hook>; 2]) -> LoadOptions<'a> {
        LoadOptions {
            sizing: self.sizing,
            constants: self.constants.clone(),
            maps: self.maps.clone(),
            hooks,
            functions: &self.functions,
            ownership: self.ownership,
            avoid: &self.avoid,
            classified: &self.classified,
            counters: self.counters.clone(),
            interrupts: self.interrupts,
            counter_hooks,
            siblings: self.siblings.clone(),
        }
    }
}

/// Returns the name of a hook and of its alternates. Settings choose among hooks with one name and different alternates.
fn full_name(hook: &Hook) -> String {
    hook.alternates.iter().fold(hook.name.to_owned(), |name, alternate| format!("{name}:{}", alternate.name))
}

/// The program has no hook with a name.
#[derive(Debug)]
pub struct UnknownHook(String);

impl fmt::Display for UnknownHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no hook has the name `{}`: the parts must be of one version", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        channel::Channel,
        config::{File, Flags, Settings},
        requirements::Requirements,
    };

    /// Passes settings through a channel.
    fn passed(orders: &Orders) -> Orders {
        let (mut one, mut other) = Channel::pair().expect("sockets");
        one.send(orders, &[]).expect("sent");
        other.receive().expect("received").0
    }

    fn resolve(yaml: &str) -> Settings {
        let file = File::parse(Path::new("config.yaml"), yaml.as_bytes()).expect("a configuration");
        Settings::resolve(Flags::default(), &|_| None, file).0
    }

    #[test]
    fn the_parts_receive_the_settings_of_the_first_process() {
        let complete = "{outputs: [json=/tmp/x], workloads: {sockets: [/run/a.sock]}, \
            packets: {filter: {ports: [80]}, group: {by: [interface]}}, \
            signals: {latency: {extra_layers: [ip_rcv]}, network_cpu: {exact: all}, processor: {events: software}, \
            slow_packets: {payload: http2, reader_states: true}}}";
        let other_source = "signals: {network_functions: {source: cycles}}";
        for yaml in ["{}", complete, other_source] {
            let settings = resolve(yaml);
            let host = Host::probe(vec!["CAP_BPF".to_owned()]);
            let requirements = Requirements::new(&settings, Some(Ownership::Unified));
            let options = requirements.load_options(host.cpus);
            let orders = Orders {
                log: Log::of(&|name| (name == "NO_COLOR").then(|| "1".to_owned())),
                loader: LoaderOrder::new(host.clone(), requirements.load_options(host.cpus)),
                reader: requirements.places(&host),
            };
            let received = passed(&orders);
            assert_eq!(received.log.0, [("NO_COLOR".to_owned(), "1".to_owned())]);
            assert_eq!(received.loader.host, host);
            let hooks = received.loader.hooks().expect("known hooks");
            let of_loader = received.loader.options(&hooks);
            assert_eq!((of_loader.hooks, of_loader.counter_hooks), (options.hooks, options.counter_hooks));
            assert_eq!((of_loader.constants, of_loader.maps), (options.constants, options.maps));
            assert_eq!((of_loader.sizing, of_loader.counters), (options.sizing, options.counters));
            assert_eq!(format!("{:?}", received.reader), format!("{:?}", requirements.places(&host)));
        }
    }

    #[test]
    fn a_hook_of_another_version_is_an_error() {
        let settings = resolve("{}");
        let requirements = Requirements::new(&settings, None);
        let mut order = LoaderOrder::new(Host::probe(Vec::new()), requirements.load_options(1));
        order.hooks.push("unheard_of".to_owned());
        let error = order.hooks().expect_err("refused").to_string();
        assert_eq!(error, "no hook has the name `unheard_of`: the parts must be of one version");
    }
}
