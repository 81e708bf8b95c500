//! The command line: what can be asked for.

mod objects;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use base::ids::ServerId;
use clap::{ArgGroup, Parser, Subcommand};
use clap_complete::Shell;
use program::version;

pub use crate::certificates::Certificates;
pub use objects::{Get, Incr, Put, Rm, Scan, Watch, if_version};
pub use values::server_id;
use values::{key_hash, seconds};

const EXAMPLES: &str = "\
Examples:
  export RCBOX_COORDINATOR=tcp:host=127.0.0.1,port=11100
  rcbox status
  rcbox create-table fruit --span 3
  rcbox put fruit apple green
  rcbox put fruit photo < photo.jpg
  rcbox get fruit apple
  rcbox get fruit --hex 6170706c65
  rcbox scan fruit --prefix a --json
  rcbox watch
  rcbox                      a prompt for many commands; `rcbox shell < FILE` runs a file of them

Exit codes: 0 done, 1 failed (also: no such object), 2 wrong use.
`rcbox COMMAND --help` has examples of that command.";

/// Looks into a store and works with its tables and objects.
#[derive(Parser, Debug)]
#[command(name = "rcbox", version = version(), after_help = EXAMPLES)]
pub struct Options {
    /// Locator of the coordinator, or several separated by ';'
    #[arg(
        short = 'C',
        long = "coordinator",
        env = "RCBOX_COORDINATOR",
        value_name = "LOCATOR",
        global = true
    )]
    pub coordinator: Option<String>,
    /// Folder with a certificate of the store's operator, for a store whose admin API asks for one: `rcbox certificates FOLDER operator`
    #[arg(long, env = "RCBOX_TLS", value_name = "FOLDER", global = true)]
    pub tls: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// How long an operation is tried
    #[arg(long, default_value = "10", value_name = "SECONDS", global = true, value_parser = seconds)]
    pub timeout: Duration,
    #[command(subcommand)]
    pub command: Option<ProgramCommand>,
}

/// What the program can do.
#[derive(Subcommand, Debug)]
pub enum ProgramCommand {
    #[command(flatten)]
    Store(Command),
    /// Reads commands from a prompt, or from a pipe or file
    ///
    /// The commands are those of the program, without its name. A prompt keeps a history and completes commands and names of
    /// tables; Ctrl-C gives up the present command, Ctrl-D leaves. From a pipe or file, the first command that fails ends it.
    #[command(after_help = "\
Examples:
  rcbox shell
  rcbox shell < commands.txt
  printf 'use fruit\\nput apple green\\nget apple\\n' | rcbox shell")]
    Shell,
    /// Writes a completion script for a shell to standard output
    #[command(after_help = crate::complete::SCRIPTS)]
    Completion { shell: Shell },
    /// Makes certificates for the processes of a store that Kubernetes does not run
    #[command(after_help = crate::certificates::HELP)]
    Certificates(Certificates),
}

/// Commands of the prompt; of words with spaces, quotes make one, as in a shell
#[derive(Parser, Debug)]
#[command(
    name = "",
    no_binary_name = true,
    disable_help_flag = false,
    override_usage = "COMMAND [ARGUMENTS]...",
    after_help = "`help COMMAND` says more. Ctrl-C gives up the present command, Ctrl-D leaves."
)]
pub struct Line {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: LineCommand,
}

/// What the prompt can do.
#[derive(Subcommand, Debug)]
pub enum LineCommand {
    #[command(flatten)]
    Store(Command),
    /// Chooses the table that get, put, rm, incr, scan and watch take from then on; without a name, none
    Use { table: Option<String> },
    /// Leaves
    #[command(alias = "quit")]
    Exit,
}

/// What can be done with a store.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Shows members, durability and losses
    #[command(after_help = "\
Examples:
  rcbox status
  rcbox status --check > /dev/null || echo 'something is down'
  rcbox status --json | jq -r '.members[] | select(.state != \"UP\") | .name'")]
    Status {
        /// End with exit code 1 unless there is a member and all are up
        #[arg(long)]
        check: bool,
    },
    /// Lists tables and where their tablets are
    Tables,
    /// Lists servers as clients see them
    Servers,
    /// Shows what has happened to the store lately: deaths, recoveries, moves, orders
    ///
    /// The newest events, 256 and a week at most. In a store of format 1 (`rcbox upgrade status`), they are those since the present coordinator leads.
    #[command(after_help = "\
Examples:
  rcbox events
  rcbox events --json | jq -r '.[] | select(.kind == \"RECOVERY_ENDED\") | .text'")]
    Events,
    /// Writes an object's value to standard output; or several objects, a line each
    #[command(after_help = "\
One object: the bytes of its value go to a pipe or file as they are; a terminal gets a line end more, and escapes (\\xHH) for what
is not text. Several objects: a line each, key and value with a tab between them, with escapes; so do commands of `rcbox shell` that
come from a pipe, unless --raw is given.

Examples:
  rcbox get fruit apple
  rcbox get fruit photo > photo.jpg
  rcbox get fruit apple pear plum --json
  rcbox get fruit apple --version-only
  rcbox get counters visits --as int")]
    Get(Get),
    /// Writes an object; prints its new version
    #[command(after_help = "\
Examples:
  rcbox put fruit apple green
  rcbox put fruit photo --file photo.jpg
  date | rcbox put fruit now
  rcbox put fruit apple red --if-version 1
  rcbox put --hex fruit 00ff green
  rcbox put fruit apple -- --green     after -- nothing is an option")]
    Put(Put),
    /// Removes objects; prints the version that was removed
    #[command(after_help = "\
Examples:
  rcbox rm fruit apple
  rcbox rm fruit apple pear plum
  rcbox rm fruit apple --if-version 7")]
    Rm(Rm),
    /// Adds to a counter; prints its new value
    #[command(after_help = "\
A counter that is not there starts at 0. It is a value of 8 bytes: an integer, little-endian, or with --float an IEEE 754 double.
`get --as int` and `get --as float` show it. The store does not know which of both it is.

Examples:
  rcbox incr counters visits
  rcbox incr counters visits -5
  rcbox incr counters litres 0.25 --float
  rcbox incr counters visits 1 --if-exists")]
    Incr(Incr),
    /// Lists the objects of a table, a line each
    #[command(after_help = "\
A line has key, version and value with tabs between them, with escapes (\\xHH) for what is not text; or is one JSON object. The order is
the store's own. An object that is there all the time comes at least once; one that is written, or comes or goes meanwhile, may or
may not come. --prefix is filtered here: the whole table is read over the network.

Examples:
  rcbox scan fruit
  rcbox scan fruit --keys-only --hex
  rcbox scan fruit --limit 10 --json
  rcbox scan fruit --keys-only | wc -l")]
    Scan(Scan),
    /// Shows the store, or one object, again and again
    #[command(after_help = "\
Without TABLE and KEY: members, memory and operations per second; on a terminal in place, else a block (or JSON line) each time.
With TABLE and KEY: the object, and again whenever its version has changed. The store does not tell of changes: the object is read
once per interval, so that of several changes within one interval only the last is seen.

Examples:
  rcbox watch
  rcbox watch --interval 5 --json
  rcbox watch fruit apple --interval 0.2")]
    Watch(Watch),
    /// Makes a table, or finds the one of that name; prints its id
    CreateTable {
        table: String,
        /// Over how many servers it is spread
        #[arg(long, default_value_t = 1, value_name = "SERVERS")]
        span: u32,
    },
    /// Drops a table with all its objects; asks on a terminal
    #[command(after_help = "\
It asks if standard input is a terminal; scripts are not asked.

Examples:
  rcbox drop-table fruit
  rcbox drop-table fruit --yes")]
    DropTable {
        table: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Shows what servers have done last, event by event: where the time of a request goes
    ///
    /// For each event: time since the one before it, its name, and what happened. Each shard remembers its last 65536 events.
    #[command(after_help = "\
`clusterperf --breakdown` sums up what such events say of many requests.

Examples:
  rcbox trace
  rcbox trace box-master-2 --last 50
  rcbox trace box-master-2 --shard 1 --json | jq '.shards[].events[] | select(.name == \"Slept\")'")]
    Trace {
        /// Only this member's; otherwise those of all that are connected
        member: Option<String>,
        /// Only this shard of each
        #[arg(long, value_name = "INDEX")]
        shard: Option<u32>,
        /// Events of each shard, at most; all shards together give no more than 20000
        #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=20_000))]
        last: u32,
    },
    /// Recoveries that wait for what is gone
    #[command(subcommand)]
    Recovery(Recovery),
    /// A store that is being made again from its volumes
    #[command(subcommand)]
    Rebuild(Rebuild),
    /// Members of the store
    #[command(subcommand)]
    Member(Member),
    /// Upgrades to a version with another format
    #[command(subcommand)]
    Upgrade(Upgrade),
    /// What can be changed while the store runs: copies, polling, cleaner, connections, logging
    #[command(subcommand)]
    Settings(Settings),
    /// Tablets, the parts of tables that servers have
    #[command(subcommand)]
    Tablet(Tablet),
    /// Splits a table into tablets of equal width, or one tablet in two, so that they can be on different servers
    ///
    /// The boundaries stay until the table is dropped: balancing does not join tablets there. It decides which servers have them; a tablet that a server
    /// has is not moved by the split itself. With --parts, all boundaries that are missing are made, or none, and nothing is done if none is missing.
    #[command(after_help = "\
`rcbox tables` shows the ranges of key hashes. A key hash is the first of the second tablet.

Exit codes: 0 the table is split as asked for; 1 it is not (no such table, a limit, a tablet is recovered or moved); 2 wrong use.

Examples:
  rcbox split fruit --parts 16
  rcbox split fruit --parts 16 --json | jq .boundariesMade
  rcbox split fruit 0x8000000000000000
  rcbox tablet migrate fruit 0x8000000000000000 box-master-2")]
    #[command(group = ArgGroup::new("how").required(true).args(["key_hash", "parts"]))]
    Split {
        table: String,
        /// Split the tablet that holds this key hash, decimal or with 0x
        #[arg(value_parser = key_hash)]
        key_hash: Option<u64>,
        /// Split the whole table into so many parts, 2 to 4096
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=4096))]
        parts: Option<u32>,
    },
}

/// What can be done with a tablet.
#[derive(Subcommand, Debug)]
pub enum Tablet {
    /// Moves a tablet to another server, while it is used
    ///
    /// Its objects are copied first, and read and written all the while. At the end writes wait, for some milliseconds as a rule. Whatever breaks
    /// meanwhile, the tablet then stays where it was. A server gives out one tablet at a time, and takes in one: others wait for their turn.
    #[command(after_help = "\
`rcbox tables` shows tablets and their servers, `rcbox status` migrations under way. Ctrl-C ends the waiting, not the migration.

Examples:
  rcbox tablet migrate fruit 0 box-master-2
  rcbox tablet migrate fruit 0x8000000000000000 3.0 --megabytes-per-second 50
  rcbox tablet migrate fruit 0 box-master-2 --no-wait")]
    Migrate {
        table: String,
        /// Key hash in the tablet, decimal or with 0x
        #[arg(value_parser = key_hash)]
        key_hash: u64,
        /// Server as the status names it, such as 3.0, or member; of a member, the server with the fewest tablets
        #[arg(value_name = "SERVER|MEMBER")]
        target: String,
        /// Copy no faster than that; otherwise 200
        #[arg(long, value_name = "MEGABYTES", value_parser = clap::value_parser!(u64).range(1..1_000_000))]
        megabytes_per_second: Option<u64>,
        /// Do not wait for the end
        #[arg(long)]
        no_wait: bool,
    },
    /// Ends a migration that waits or is under way; the tablet stays where it was
    #[command(after_help = "\
`rcbox status` shows which there are, with their numbers.

Example:
  rcbox tablet give-up 17")]
    GiveUp {
        #[arg(value_name = "MIGRATION")]
        migration_id: u64,
    },
}

/// What can be done about a recovery.
#[derive(Subcommand, Debug)]
pub enum Recovery {
    /// Lets a recovery go on without what is missing; what is missing is then lost for ever
    ///
    /// A recovery waits as long as no backup has some part of the dead server's log, and goes on by itself when a disk that has it returns.
    /// If these disks are gone for ever, somebody has to say so. Without --token nothing is changed: it shows what is missing, what is left,
    /// and the token that stands for just this. With the token it is given up; another token, because something has changed meanwhile, is refused.
    #[command(after_help = "\
What is lost: the newest objects, or the removal of objects, that only the missing segments had. Of such an object an older value, or none,
is served afterwards. The status lists the loss from then on, and a disk that turns up later is not read any more.

Examples:
  rcbox recovery accept-loss 3.0
  rcbox recovery accept-loss 3.0 --token 5f3a9c01
  rcbox recovery accept-loss 3.0 --token 5f3a9c01 --yes")]
    AcceptLoss {
        /// The dead server, as the status names it
        #[arg(value_parser = server_id)]
        server: ServerId,
        /// What was shown as the token of what is missing
        #[arg(long)]
        token: Option<String>,
        /// Do not ask
        #[arg(long, short, requires = "token")]
        yes: bool,
    },
}

/// What can be done about a store that is being made again from its volumes.
#[derive(Subcommand, Debug)]
pub enum Rebuild {
    /// Makes the store again without the volumes of these members, which are gone for good; asks on a terminal
    ///
    /// A coordinator with --rebuild waits for the volumes of as many members as may have the newest copy of its state, and the status names those that are
    /// missing. Each that will never come again has to be named, at once or one after the other; whose volume comes all the same is heard.
    #[command(after_help = "\
What may be lost: what the coordinator noted after the newest copy that is there, such as tables that were made, and what was written since a
change of who has a tablet or which copies count. `rcbox status` shows afterwards from which copy the store was made, and without whom. Objects whose
copies were all in these volumes are another matter: recoveries wait for them; see `rcbox recovery accept-loss --help`.

It asks if standard input is a terminal; scripts are not asked.

Examples:
  rcbox rebuild give-up box-master-2
  rcbox rebuild give-up box-master-2 box-master-5 --yes")]
    GiveUp {
        #[arg(required = true, value_name = "MEMBER")]
        members: Vec<String>,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// What can be done about a member.
#[derive(Subcommand, Debug)]
pub enum Member {
    /// Moves all that a member has to others, so that it can be removed
    ///
    /// From then on it gets no new tablets and no new copies. Its tablets move to others while they are used, and copies that it keeps for others
    /// are made elsewhere before its own go. The status shows how far it is. It can be taken back at any time.
    #[command(after_help = "\
It is refused where it could not end: nobody else could have its tablets, or fewer machines would be left than copies are wanted. With
--wait it shows what is left until the member is drained; Ctrl-C ends the waiting, not the drain. Under Kubernetes the operator drains
members; use `kubectl scale`.

Examples:
  rcbox member drain box-master-3
  rcbox member drain box-master-3 --wait && rcbox member remove box-master-3 --yes
  rcbox member undrain box-master-3")]
    Drain {
        name: String,
        /// Wait until nobody needs anything that it has
        #[arg(long)]
        wait: bool,
    },
    /// A member that is drained stays after all
    Undrain { name: String },
    /// Takes a member out of the store for good; asks on a terminal
    ///
    /// It is refused while the member serves tablets, and while copies that it keeps for others may be the last ones; the error says whose, and
    /// what to wait for. One that is drained has neither: see `member drain`.
    #[command(after_help = "\
Under Kubernetes the operator removes members; use `kubectl scale`.

Examples:
  rcbox member remove box-master-3
  rcbox member remove box-master-3 --yes
  rcbox member remove box-master-3 --give-up-copies    its disk is gone for ever, and a recovery waits for it")]
    Remove {
        name: String,
        /// Keep processes of this instance out, too, even if they never enlisted
        #[arg(long, value_name = "INSTANCE", default_value = "")]
        instance: String,
        /// Also while copies that it keeps may be the last ones
        #[arg(long)]
        give_up_copies: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// What can be done with settings.
#[derive(Subcommand, Debug)]
pub enum Settings {
    /// Shows what is set, and where it is not in force yet
    Show,
    /// Changes settings; nothing is restarted
    ///
    /// What is not set is as servers and coordinator were started. Where an operator manages the store, it sets what the Store resource says.
    #[command(after_help = "\
Settings:
  replicas            copies of each object on other servers, 1 to 8
  minReplicas         with fewer, writes wait; set with replicas [default: one less, at least 1]
  repairMBps          how fast each log's lost copies are made again
  pollMicros          how long a shard polls after its last request before it sleeps
  cleanerFreePercent  the cleaner runs while no more of a log's memory than this is free, 1 to 50
  maxConnections      connections of clients to each shard
  logLevel            error, warn, info, debug or trace
  rebalanceMBps       of each tablet that is moved by itself; 0: none is, but from drained members

Examples:
  rcbox settings set replicas=3
  rcbox settings set logLevel=debug pollMicros=0")]
    Set {
        #[arg(required = true, value_name = "NAME=VALUE")]
        values: Vec<String>,
    },
    /// Takes settings back: what programs were started with counts again
    #[command(after_help = "\
Examples:
  rcbox settings unset logLevel")]
    Unset {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

/// What can be done about an upgrade.
#[derive(Subcommand, Debug)]
pub enum Upgrade {
    /// Shows the format in force, what each member reads, and whether an upgrade can be finalized
    Status,
    /// Puts the newest format in force, once every member reads it; asks on a terminal
    ///
    /// Until then the new version can be taken back, server by server. From then on servers and coordinators of the version before have no part
    /// in the store any more.
    #[command(after_help = "\
Examples:
  rcbox upgrade status
  rcbox upgrade finalize --yes")]
    Finalize {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// A time in seconds, from 1 ms to a day.
#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use client::RejectRules;

    #[test]
    fn the_command_lines_are_consistent() {
        Options::command().debug_assert();
        Line::command().debug_assert();
    }

    #[test]
    fn conditions_are_reject_rules() {
        let rules = |condition: &[&str]| {
            let words = [&["rcbox", "put", "t", "k", "v"], condition].concat();
            match Options::try_parse_from(words).unwrap().command {
                Some(ProgramCommand::Store(Command::Put(put))) => put.conditions.rules(),
                other => panic!("{other:?}"),
            }
        };
        let none = RejectRules::default();
        assert_eq!(rules(&[]), none);
        assert_eq!(
            rules(&["--if-absent"]),
            RejectRules {
                exists: true,
                ..none
            }
        );
        assert_eq!(
            rules(&["--if-exists"]),
            RejectRules {
                doesnt_exist: true,
                ..none
            }
        );
        assert_eq!(
            rules(&["--if-version", "7"]),
            RejectRules {
                given_version: 7,
                version_ne_given: true,
                doesnt_exist: true,
                ..none
            }
        );
    }

    #[test]
    fn numbers_that_are_not_meant_are_refused() {
        for words in [
            "rcbox --timeout 0 status",
            "rcbox --timeout nan status",
            "rcbox --timeout inf status",
            "rcbox watch --interval -1",
            "rcbox split t 0xg",
            "rcbox split t 18446744073709551616",
            "rcbox split t",
            "rcbox split t --parts 1",
            "rcbox split t --parts 4097",
            "rcbox split t 0x8000000000000000 --parts 2",
            "rcbox put t k v --if-absent --if-version 3",
            "rcbox put t k v --file f",
            "rcbox get t k --hex --escaped",
            "rcbox watch t k more",
            "rcbox recovery accept-loss 3",
            "rcbox recovery accept-loss 3.0 --yes",
            "rcbox member remove",
            "rcbox tablet migrate t 0",
            "rcbox tablet migrate t x 3.0",
            "rcbox tablet migrate t 0 3.0 --megabytes-per-second 0",
        ] {
            assert!(
                Options::try_parse_from(words.split(' ')).is_err(),
                "{words}"
            );
        }
        assert_eq!(key_hash("0x10"), Ok(16));
        assert_eq!(key_hash("10"), Ok(10));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    }
}
