//! Kinds of runs.

/// What kind of runs seeds stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Half of the logs have replicas; one seed in twenty is of [`Profile::FailOver`], one of [`Profile::Upgrade`], and one of [`Profile::Rebuilding`]; one in fifty is of
    /// [`Profile::Quiet`].
    #[default]
    Any,
    /// All of them have.
    Replicated,
    /// They have, and tablets are moved between servers all the time.
    Migrating,
    /// None has, and tablets move all the time.
    Unreplicated,
    /// They have, tablets move, and members are drained and undrained.
    Draining,
    /// They have, on disks of the size that servers choose by themselves, and clients overwrite until each disk was filled [`OVERWRITES`] times.
    Overwriting,
    /// They have, and coordinators take over from each other.
    FailOver,
    /// They have, on members that are restarted again and again, while clients do little and operators give orders.
    Quiet,
    /// They have, and processes are of builds that read different formats.
    Upgrade,
    /// They have, and stores are made again from their disks alone.
    Rebuilding,
}
