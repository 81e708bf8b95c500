//! Orders of people about settings.

use wire::member::Settings;

use crate::effects::CoordinatorEffects;
use crate::orders::{Copies, SettingsError, SettingsOrder, SpecVersion};
use crate::root::Coordinator;
use crate::status::EventKind;

impl Coordinator {
    /// What is set. A driver looks at it for what concerns its own process.
    pub fn settings(&self) -> Settings {
        self.settings.settings()
    }

    /// Puts these in the place of those in force, and tells the servers. Answers what is in force then; asking for what is so already changes nothing.
    ///
    /// # Errors
    /// They are not possible, or there would be fewer copies and the order has no reason for it that holds.
    pub fn set_settings(
        &mut self,
        order: &SettingsOrder,
        out: &mut impl CoordinatorEffects,
    ) -> Result<Settings, SettingsError> {
        if let Some(why) = self.refusal() {
            return Err(SettingsError::DoesNotLead(why.to_owned()));
        }
        self.check_store(order.expected_cluster_id)
            .map_err(SettingsError::OtherStore)?;
        if self.settings.set(&mut self.store.members, order, out)? {
            // How tablets are moved may be another matter now.
            self.movement.look_soon();
            let number = self.settings().number;
            let text = format!("settings number {number} are in force");
            self.record_order(EventKind::SettingsChanged, text);
        }
        Ok(self.settings())
    }

    /// How many copies there are to be now: as was set, or else as many as any server was started with.
    pub fn copies_in_force(&self) -> Copies {
        self.settings.copies(&self.store.members)
    }

    /// Which version of a specification asked for these; `None`: a person did, or an order of an older build.
    pub fn copies_asked_by(&self) -> Option<&SpecVersion> {
        self.settings.copies_asked_by.as_ref()
    }
}
