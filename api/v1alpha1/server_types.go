package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Server is a machine in a slot of a Chassis. The operator makes it, and it keeps its name and addresses when another blade is put into the
// slot.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=servers,scope=Cluster,categories=rcbox
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Chassis",type=string,JSONPath=`.status.chassis`,description="The Chassis that it is in"
// +kubebuilder:printcolumn:name="Slot",type=integer,JSONPath=`.status.slot`,description="The slot"
// +kubebuilder:printcolumn:name="Power",type=string,JSONPath=`.status.power.state`,description="Whether it is on, as far as is known"
// +kubebuilder:printcolumn:name="Wanted",type=string,JSONPath=`.spec.power`,description="Whether it should be on"
// +kubebuilder:printcolumn:name="BMC",type=string,JSONPath=`.status.mmc.address`,description="The address of its BMC"
// +kubebuilder:printcolumn:name="Reachable",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`,description="Whether its BMC answers"
// +kubebuilder:printcolumn:name="AsRecorded",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="AsRecorded")].status`,description="Whether it is the blade that was accepted"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`,description="The node that runs on it"
// +kubebuilder:printcolumn:name="Serial",type=string,priority=1,JSONPath=`.status.hardware.serial`,description="Its serial number"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Server struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The state that is asked of it.
	//
	// +optional
	// +kubebuilder:default={}
	Spec ServerSpec `json:"spec,omitempty"`
	// The state that the operator saw last, and wrote.
	//
	// +optional
	Status ServerStatus `json:"status,omitempty"`
}

// ServerList is a list of Servers.
//
// +kubebuilder:object:root=true
type ServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Server `json:"items"`
}

// WantedPower is whether a server should be on.
//
// +kubebuilder:validation:Enum=Unmanaged;On;Off
type WantedPower string

const (
	// WantUnmanaged means that the operator leaves it as it is.
	WantUnmanaged WantedPower = "Unmanaged"
	// WantOn means that it is switched on whenever it is off.
	WantOn WantedPower = "On"
	// WantOff means that its operating system is shut down, and that it is switched off if that does not end in time.
	WantOff WantedPower = "Off"
)

// PowerAction is something that is done once.
//
// +kubebuilder:validation:Enum=On;Soft;Off;Cycle;Reset
type PowerAction string

const (
	// ActionOn switches it on.
	ActionOn PowerAction = "On"
	// ActionSoft asks its operating system to shut down, and waits for that.
	ActionSoft PowerAction = "Soft"
	// ActionOff takes its power away, whatever runs on it.
	ActionOff PowerAction = "Off"
	// ActionCycle takes its power away, and gives it back once it is proved to be off.
	ActionCycle PowerAction = "Cycle"
	// ActionReset restarts it at once.
	ActionReset PowerAction = "Reset"
)

// ServerSpec says what is asked of a server.
type ServerSpec struct {
	// Whether it should be on. Unmanaged: the operator watches it, and does only what spec.order says.
	//
	// +optional
	// +kubebuilder:default=Unmanaged
	Power WantedPower `json:"power,omitempty"`

	// Something that is to be done once; kubectl rcbox power writes it. A new id is a new order.
	//
	// +optional
	Order *PowerOrder `json:"order,omitempty"`

	// The serial number of the blade that is accepted in this slot. Left empty, it is the first one that is seen there.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AcceptedSerial string `json:"acceptedSerial,omitempty"`

	// Until when its light blinks, by which somebody in front of the rack finds it; kubectl rcbox led writes it.
	//
	// +optional
	LocateUntil *metav1.Time `json:"locateUntil,omitempty"`

	// The device that it boots from at its next start, and at that one only; kubectl rcbox pxeboot writes it. A new id is a new order. It
	// starts nothing.
	//
	// +optional
	Boot *BootOrder `json:"boot,omitempty"`

	// That it is broken: members of Stores leave its node, then it is switched off, and nothing switches it on while this is set. kubectl
	// rcbox isolate-server writes it.
	//
	// +optional
	Isolated *ServerIsolationSpec `json:"isolated,omitempty"`

	// Whether a server that was isolated must qualify before its node gets pods again. Waived counts until the server is isolated again;
	// kubectl rcbox isolate-server --undo --force writes it.
	//
	// +optional
	// +kubebuilder:default=Required
	Qualification QualificationPolicy `json:"qualification,omitempty"`
}

// BootDevice is what a server boots from.
//
// +kubebuilder:validation:Enum=Network;Disk
type BootDevice string

const (
	// BootNetwork is the network, by PXE.
	BootNetwork BootDevice = "Network"
	// BootDisk is its own disk.
	BootDisk BootDevice = "Disk"
)

// BootOrder says what a server boots from at its next start.
//
// +kubebuilder:validation:XValidation:rule="!has(self.wipe) || !self.wipe || self.device == 'Network'",message="boot.wipe needs boot.device Network: an installation from the network wipes the disk"
// +kubebuilder:validation:XValidation:rule="self.id != oldSelf.id || (has(self.wipe) && self.wipe) == (has(oldSelf.wipe) && oldSelf.wipe)",message="boot.wipe of an order cannot change: write a new boot.id"
type BootOrder struct {
	// A name that distinguishes this order from those before.
	//
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="boot.id must consist of letters, digits, '-', '_' and '.'"
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// The device that it boots from.
	Device BootDevice `json:"device"`
	// The installation from the network gives up everything that is on the disk, backups included. It does so at each start from the
	// network until the server has joined the cluster.
	//
	// +optional
	Wipe bool `json:"wipe,omitempty"`
}

// PowerOrder is something that is to be done once.
type PowerOrder struct {
	// A name that distinguishes this order from those before.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// The action that is ordered.
	Action PowerAction `json:"action"`
	// Members of Stores that run there are not waited for, and Soft takes the power away if the operating system does not shut down in
	// time.
	//
	// +optional
	Force bool `json:"force,omitempty"`
	// How many servers are given this order, with the same id. If these are all servers of a Chassis, each waits up to 3 s for the next
	// one to have it, so that one command to the chassis manager can carry it out. 0: it is given to this server alone.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Servers int32 `json:"servers,omitempty"`
}

// PowerState is whether a server is on.
//
// +kubebuilder:validation:Enum=Unknown;On;Off
type PowerState string

const (
	// PowerUnknown means that nobody said so lately, or that they contradict each other. It never means Off.
	PowerUnknown PowerState = "Unknown"
	// PowerOn means that its BMC, or its chassis manager, says that it is on.
	PowerOn PowerState = "On"
	// PowerOff means that its BMC, or its chassis manager, says that it is off. Only status.lastOff is proof.
	PowerOff PowerState = "Off"
)

// Witness is who has said whether a server is on.
//
// +kubebuilder:validation:Enum=MMC;CMM;SwitchLink;PowerReading
type Witness string

const (
	// WitnessMMC is the server's own BMC.
	WitnessMMC Witness = "MMC"
	// WitnessCMM is the chassis manager.
	WitnessCMM Witness = "CMM"
	// WitnessSwitchLink is the link of the server's port at the switch.
	WitnessSwitchLink Witness = "SwitchLink"
	// WitnessPowerReading is what the slot draws, as the chassis measures it.
	WitnessPowerReading Witness = "PowerReading"
)

// Conditions of a Server.
const (
	// ConditionReachable means that its BMC answers.
	ConditionReachable = "Reachable"
	// ConditionPoweredOn means that it is known to be on.
	ConditionPoweredOn = "PoweredOn"
	// ConditionNodeReady means that the node that runs on it is ready.
	ConditionNodeReady = "NodeReady"
	// ConditionHealthy means that no sensor is beyond its limits, that its BMC's log has no memory errors of the last 24 hours, but for a
	// few that were corrected, and that its system reports no links that are lost, and nothing that is far too slow.
	ConditionHealthy = "Healthy"
	// ConditionAsRecorded means that the blade in the slot is the one that was accepted.
	ConditionAsRecorded = "AsRecorded"
	// ConditionAsReported means that the system of the blade has found what its BMC reports. It is there as long as the server's node has a
	// report.
	ConditionAsReported = "AsReported"
	// ConditionFenceable means that what its BMC switches off is the node of that name, and that there is a second witness.
	ConditionFenceable = "Fenceable"
)

// ServerStatus describes what was last seen.
type ServerStatus struct {
	// The generation of the spec that this is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The Chassis that it is in.
	//
	// +optional
	Chassis string `json:"chassis,omitempty"`
	// The slot.
	//
	// +optional
	Slot int32 `json:"slot,omitempty"`
	// Whether it is on.
	//
	// +optional
	Power ServerPower `json:"power,omitempty"`
	// The last order, and what became of it.
	//
	// +optional
	Order *OrderStatus `json:"order,omitempty"`
	// The change of its power that is under way; absent while there is none. It is on record before anything is done, and an operator that
	// is started anew goes on from there.
	//
	// +optional
	Change *PowerChange `json:"change,omitempty"`
	// The light by which somebody finds it; absent while nobody asked for that.
	//
	// +optional
	Light *LightStatus `json:"light,omitempty"`
	// The last order what to boot from, and what became of it.
	//
	// +optional
	Boot *BootStatus `json:"boot,omitempty"`
	// Its isolation; absent while it is in use.
	//
	// +optional
	Isolation *ServerIsolationStatus `json:"isolation,omitempty"`
	// When its isolation was taken back last. Faults that were known before do not isolate it again.
	//
	// +optional
	ReturnedAt *metav1.Time `json:"returnedAt,omitempty"`
	// How far it is in becoming a node, if it is to boot from the network.
	//
	// +optional
	Join *JoinStatus `json:"join,omitempty"`
	// The last time that it was proved to be off; absent before the first, and once it is on again.
	//
	// +optional
	LastOff *OffProof `json:"lastOff,omitempty"`
	// Its BMC.
	//
	// +optional
	MMC BMCStatus `json:"mmc,omitempty"`
	// The addresses that its ports have by its slot.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Ports []PortStatus `json:"ports,omitempty"`
	// The product and its parts, as its BMC names them.
	//
	// +optional
	Hardware HardwareStatus `json:"hardware,omitempty"`
	// The readings of sensors, rounded; written when they change.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Sensors []SensorStatus `json:"sensors,omitempty"`
	// The newest events in the log of its BMC (SEL), oldest first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Events []EventStatus `json:"events,omitempty"`
	// The node that runs on it: the one whose systemUUID is its BMC's system GUID.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// Reachable, PoweredOn, NodeReady, Healthy, AsRecorded, AsReported, Fenceable, Joined, Isolated, Qualified.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ServerPower says whether a server is on.
type ServerPower struct {
	// On, Off or Unknown.
	//
	// +optional
	// +kubebuilder:default=Unknown
	State PowerState `json:"state,omitempty"`
	// Since when that is so, as far as was seen.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// The witness that says so.
	//
	// +optional
	Source Witness `json:"source,omitempty"`
	// Until when a command to switch it on or to restart it may still take effect, whatever has become of whoever gave it. Nothing that was
	// seen before proves that it is off.
	//
	// +optional
	MayStartUntil *metav1.Time `json:"mayStartUntil,omitempty"`
}

// ChangeReason is on whose behalf a server's power is changed.
//
// +kubebuilder:validation:Enum=Order;Spec;Fencing;Isolation
type ChangeReason string

const (
	// ForOrder is on behalf of spec.order.
	ForOrder ChangeReason = "Order"
	// ForSpec is on behalf of spec.power.
	ForSpec ChangeReason = "Spec"
	// ForFencing is on behalf of a Store that has lost the server's node. The server stays off until that Store does not ask for it any
	// more.
	ForFencing ChangeReason = "Fencing"
	// ForIsolation is on behalf of spec.isolated, or of its end.
	ForIsolation ChangeReason = "Isolation"
)

// ChangeStage is how far a change of power is.
//
// +kubebuilder:validation:Enum=ShuttingDown;SwitchingOff;SwitchingOn;Restarting
type ChangeStage string

const (
	// StageShuttingDown means that its operating system was asked to shut down.
	StageShuttingDown ChangeStage = "ShuttingDown"
	// StageSwitchingOff means that its power is taken away.
	StageSwitchingOff ChangeStage = "SwitchingOff"
	// StageSwitchingOn means that it is switched on.
	StageSwitchingOn ChangeStage = "SwitchingOn"
	// StageRestarting means that it is restarted. The command is given once and never again.
	StageRestarting ChangeStage = "Restarting"
)

// PowerChange is what is being done about a server's power.
type PowerChange struct {
	// On whose behalf.
	For ChangeReason `json:"for"`
	// How far it is.
	Stage ChangeStage `json:"stage"`
	// Since when.
	Since metav1.Time `json:"since"`
	// How often the command of this stage was given.
	//
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// When it was given last.
	//
	// +optional
	TriedAt *metav1.Time `json:"triedAt,omitempty"`
	// The second witness has not seen the server off. Its power is given back all the same, and the order Cycle fails.
	//
	// +optional
	Unproved bool `json:"unproved,omitempty"`
	// The controller that it was given to: MMC or CMM.
	//
	// +optional
	By Witness `json:"by,omitempty"`
}

// OrderState is how far an order is.
//
// +kubebuilder:validation:Enum=Waiting;Running;Done;Refused;Failed
type OrderState string

// States of an order.
const (
	OrderWaiting OrderState = "Waiting"
	OrderRunning OrderState = "Running"
	OrderDone    OrderState = "Done"
	OrderRefused OrderState = "Refused"
	OrderFailed  OrderState = "Failed"
)

// OrderStatus describes what became of an order. It is on record before anything is done.
type OrderStatus struct {
	// The order.
	ID string `json:"id"`
	// The action that is ordered.
	Action PowerAction `json:"action"`
	// How far it is.
	State OrderState `json:"state"`
	// When it was begun.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// The reason why it waits, was refused or has failed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// LightStatus describes what a BMC was told about its light.
type LightStatus struct {
	// Until when it was told to blink; absent: it was told to stop.
	//
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// When it was told last.
	TriedAt metav1.Time `json:"triedAt"`
	// Running until the BMC has answered, then Done or Failed.
	State OrderState `json:"state"`
	// Why the light is not as it should be.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// BootStatus describes what became of an order what to boot from. It is on record before the BMC is told.
type BootStatus struct {
	// The order.
	ID string `json:"id"`
	// The device that it boots from.
	Device BootDevice `json:"device"`
	// How far it is.
	State OrderState `json:"state"`
	// When it was begun.
	Since metav1.Time `json:"since"`
	// How often the BMC was told.
	//
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// When it was told last.
	//
	// +optional
	TriedAt *metav1.Time `json:"triedAt,omitempty"`
	// The reason why it waits, or has failed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// OffProof says who has seen that a server was off.
type OffProof struct {
	// When.
	At metav1.Time `json:"at"`
	// Two witnesses, at least one besides the BMC that was ordered.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=4
	By []Witness `json:"by"`
}

// BMCStatus describes a BMC.
type BMCStatus struct {
	// Its address.
	//
	// +optional
	Address string `json:"address,omitempty"`
	// The version of its firmware.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Firmware string `json:"firmware,omitempty"`
	// The system GUID that it reports.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=36
	SystemGUID string `json:"guid,omitempty"`
	// Since when it does not answer.
	//
	// +optional
	SilentSince *metav1.Time `json:"silentSince,omitempty"`
	// The login that the BMC has refused; absent once the BMC accepts a login.
	//
	// +optional
	Refused *RefusedLogin `json:"refused,omitempty"`
	// How far it is in moving to the VLAN of its Chassis; absent where that names none.
	//
	// +optional
	VLAN *BMCVLAN `json:"vlan,omitempty"`
}

// PortStatus describes a port of a server.
type PortStatus struct {
	// Its name, such as atom007a.
	Name string `json:"name"`
	// The number of the NIC.
	NIC int32 `json:"nic"`
	// Its address, by its slot.
	//
	// +optional
	Address string `json:"address,omitempty"`
	// Its hardware address, as its BMC says.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=17
	MAC string `json:"mac,omitempty"`
}

// HardwareStatus describes what is in a slot.
type HardwareStatus struct {
	// The manufacturer.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Manufacturer string `json:"manufacturer,omitempty"`
	// The name of the product.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Product string `json:"product,omitempty"`
	// Its serial number.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Serial string `json:"serial,omitempty"`
	// The serial number of the blade that is accepted in this slot.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AcceptedSerial string `json:"acceptedSerial,omitempty"`
}

// SensorStatus is what a sensor says.
type SensorStatus struct {
	// Its name.
	//
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`
	// Its reading, with its unit, such as 41 C.
	//
	// +kubebuilder:validation:MaxLength=32
	Value string `json:"value"`
	// Whether it is beyond a limit.
	//
	// +optional
	Beyond bool `json:"beyond,omitempty"`
}

// EventStatus is an event in the log of a BMC.
type EventStatus struct {
	// The BMC's number of it.
	ID int32 `json:"id"`
	// When, by the BMC's clock; absent where it did not know.
	//
	// +optional
	At *metav1.Time `json:"at,omitempty"`
	// The sensor, by its name, or by its type and number where it has none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Sensor string `json:"sensor,omitempty"`
	// The event, in words.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=96
	Text string `json:"text,omitempty"`
	// Whether this is the end of what the sensor reports, rather than the beginning.
	//
	// +optional
	Ended bool `json:"ended,omitempty"`
}
