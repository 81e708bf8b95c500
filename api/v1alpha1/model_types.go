package v1alpha1

// ModelOverrides are figures of the hardware of one chassis that its model does not have, or has wrong. A figure that is left out is that
// of the model. What `kubectl rcbox scan --check` shows of a chassis is written here.
type ModelOverrides struct {
	// The longest password that its BMCs keep whole over IPMI.
	//
	// +optional
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=20
	PasswordBytes int32 `json:"passwordBytes,omitempty"`

	// Its slots.
	//
	// +optional
	Slots ModelSlots `json:"slots,omitzero"`

	// The hardware of a slot's server, and the power that it draws.
	//
	// +optional
	Server ModelServer `json:"server,omitzero"`

	// The readings that the controllers of its switch boards show.
	//
	// +optional
	SwitchBoards ModelSwitchBoards `json:"switchBoards,omitzero"`

	// The parts that its chassis managers show and switch.
	//
	// +optional
	Manager ModelManager `json:"manager,omitzero"`

	// The most that the whole chassis draws, in watts.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxWatts int32 `json:"maxWatts,omitempty"`
}

// ModelSlots are the slots of a chassis.
type ModelSlots struct {
	// How many there are.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	Count int32 `json:"count,omitempty"`
	// How many there are in each row, from the top of its front.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Rows []int32 `json:"rows,omitempty"`
}

// ModelServer is what a slot's server has and draws.
type ModelServer struct {
	// Its NICs.
	//
	// +optional
	NICs ModelNICs `json:"nics,omitzero"`
	// The most that a server draws, in watts.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	Watts int32 `json:"watts,omitempty"`
	// The power that a server draws while it starts, in watts.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartWatts int32 `json:"startWatts,omitempty"`
	// How long it draws that.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartSeconds int32 `json:"startSeconds,omitempty"`
	// How long after its yes a server's BMC may still carry out a command about power. No such command is repeated before.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600
	CommandSeconds int32 `json:"commandSeconds,omitempty"`
}

// ModelSwitchBoards is what the controllers of switch boards show.
type ModelSwitchBoards struct {
	// The sensor of a board's controller for the link of a QSFP port, which one of the boards has.
	//
	// +optional
	UplinkLink *ModelLink `json:"uplinkLink,omitempty"`
	// The sensor of a board's controller for the link of the server in a slot, which each of the boards has.
	//
	// +optional
	ServerLink *ModelLink `json:"serverLink,omitempty"`
}

// ModelLink is a sensor of a switch board's controller, one for each port.
type ModelLink struct {
	// Its name, with %d or %02d for the number of the port or slot.
	//
	// +optional
	Sensor SensorForm `json:"sensor,omitempty"`
	// A link whose sensor shows less, or has no reading, is down.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	UpFrom int32 `json:"upFrom,omitempty"`
}

// ModelNICs are the NICs of a server.
type ModelNICs struct {
	// How many there are.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Count int32 `json:"count,omitempty"`
}

// ModelManager is what chassis managers show and switch.
type ModelManager struct {
	// The actions that one command to it does to all servers: On, Soft.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	WholeChassis []PowerAction `json:"wholeChassis,omitempty"`
	// Whether it starts servers one after the other when it is told to switch all on.
	//
	// +optional
	StaggersStarts *bool `json:"staggersStarts,omitempty"`
	// The discrete sensor that shows whether a slot's server is on: a second witness of that it is off.
	//
	// +optional
	SlotState *ModelSlotState `json:"slotState,omitempty"`
	// The sensor that shows what a slot draws: such a witness, too.
	//
	// +optional
	SlotWatts *ModelSlotWatts `json:"slotWatts,omitempty"`
	// The name of the sensor that is above 0 at the manager that is in charge.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	InCharge string `json:"inCharge,omitempty"`
	// The name of the sensor that shows what the chassis draws.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ChassisWatts string `json:"chassisWatts,omitempty"`
	// The power supplies.
	//
	// +optional
	PowerSupplies *ModelParts `json:"powerSupplies,omitempty"`
	// The fans.
	//
	// +optional
	Fans *ModelParts `json:"fans,omitempty"`
}

// SensorForm is the name of a sensor with a place for a number.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[^%]*%(02)?d[^%]*$')",message="a sensor must be its name with one %d or %02d in the place of the number, such as Slot %02d Power"
type SensorForm string

// ModelSlotState is a discrete sensor of the chassis manager, one for each slot.
type ModelSlotState struct {
	// Its name, with %d or %02d for the number of the slot.
	//
	// +optional
	Sensor SensorForm `json:"sensor,omitempty"`
	// Its value, as bits, while the server is on. In YAML the field must be quoted: "on".
	//
	// +optional
	On int64 `json:"on,omitempty"`
	// Its value while the server is off. In YAML the field must be quoted: "off".
	//
	// +optional
	Off int64 `json:"off,omitempty"`
}

// ModelSlotWatts is a sensor of the chassis manager for the power of a slot.
type ModelSlotWatts struct {
	// Its name, with %d or %02d for the number of the slot.
	//
	// +optional
	Sensor SensorForm `json:"sensor,omitempty"`
	// A slot that draws less has no blade: the BMC of one that is off still draws some.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	EmptyBelow int32 `json:"emptyBelow,omitempty"`
	// A server that draws less is off. Choose it from what blades draw that are off, with a margin: this figure is a proof.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	OffBelow int32 `json:"offBelow,omitempty"`
	// A server that draws so much is on. Between the two nothing is known.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	OnFrom int32 `json:"onFrom,omitempty"`
}

// ModelParts are things of which a chassis has several, each with a sensor of the chassis manager.
type ModelParts struct {
	// Its name, with %d or %02d for the number of the part, from 1.
	//
	// +optional
	Sensor SensorForm `json:"sensor,omitempty"`
	// How many there are.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Count int32 `json:"count,omitempty"`
	// A part whose sensor shows less, or has no reading, has failed or is not there.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	WorksFrom int32 `json:"worksFrom,omitempty"`
}
