//! What a candidate is at the moment, for everybody who asks.

use tokio::sync::watch;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It waits until nobody else leads.
    #[default]
    Standby,
    /// It was elected, and reads the state.
    TakingOver,
    Leading,
    /// It was elected and must not lead; people have to do something.
    Refused(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub role: Role,
    /// Who leads, as far as this candidate knows.
    pub holder: Option<String>,
    /// Why the lease cannot be read or written, or the state not be loaded.
    pub trouble: Option<String>,
}

pub type Sender = watch::Sender<Standing>;
pub type Receiver = watch::Receiver<Standing>;

impl Standing {
    /// Nothing where it leads; else why it answers nothing.
    pub fn why_not(&self) -> Option<String> {
        let mut text = match (&self.role, &self.holder) {
            (Role::Leading, _) => return None,
            (Role::Refused(why), _) => return Some(why.clone()),
            (Role::TakingOver, _) => {
                "this coordinator was just elected, and reads the store's state".to_owned()
            }
            (Role::Standby, Some(holder)) => {
                format!("this coordinator is a standby; {holder} leads")
            }
            (Role::Standby, None) => {
                "this coordinator is a standby, and does not know yet who leads".to_owned()
            }
        };
        if let Some(trouble) = &self.trouble {
            text = format!("{text}; {trouble}");
        }
        Some(text)
    }

    /// Nothing where it leads, or could the moment that the leader is gone; else why it is not ready. Readiness directs no clients:
    /// the leader writes itself into the EndpointSlices. So a standby that is well is ready, and no probe warns of it for ever.
    pub fn why_not_ready(&self) -> Option<String> {
        match (&self.role, &self.holder, &self.trouble) {
            (Role::Standby, Some(_), None) => None,
            _ => self.why_not(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_ready_if_it_could_lead() {
        let standing = |role, holder: Option<&str>, trouble: Option<&str>| Standing {
            role,
            holder: holder.map(str::to_owned),
            trouble: trouble.map(str::to_owned),
        };
        let well = standing(Role::Standby, Some("box-coordinator-b"), None);
        assert_eq!(well.why_not_ready(), None);
        assert!(well.why_not().is_some(), "it answers nothing all the same");
        let leading = standing(Role::Leading, Some("box-coordinator-a"), None);
        assert_eq!(leading.why_not_ready(), None);
        for not_ready in [
            standing(Role::Standby, None, None),
            standing(
                Role::Standby,
                Some("box-coordinator-b"),
                Some("no API server"),
            ),
            standing(Role::TakingOver, Some("box-coordinator-a"), None),
            standing(Role::Refused("StateIncomplete".to_owned()), None, None),
        ] {
            assert_eq!(not_ready.why_not_ready(), not_ready.why_not());
            assert!(not_ready.why_not_ready().is_some(), "{not_ready:?}");
        }
    }
}
