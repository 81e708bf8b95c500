package v1alpha1

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// Conditions of a StoreOperation.
const (
	// ConditionOperationComplete is True once what was ordered was done.
	ConditionOperationComplete = "Complete"
	// ConditionOperationFailed is True once it is certain that it will not be done.
	ConditionOperationFailed = "Failed"
)

// Reasons of these conditions; docs/store-operations.md explains each.
const (
	ReasonOperationWaits      = "Waits"
	ReasonOperationUnderWay   = "UnderWay"
	ReasonOperationDone       = "Done"
	ReasonOperationRefused    = "Refused"
	ReasonOperationStoreIsNew = "StoreIsNewer"
	ReasonOperationInForce    = "InForce"
	ReasonOperationNoMember   = "NoSuchMember"
	ReasonOperationNoTable    = "NoSuchTable"
	ReasonOperationTooMany    = "TooManyIsolated"
	ReasonDrillTooSlow        = "TooSlow"
	ReasonDrillUnfinished     = "Unfinished"
)

// MaxFinishedOperations is how many StoreOperations that have ended are kept of each Store.
const MaxFinishedOperations = 20

// OperationName is the name of the StoreOperation that the operator makes of an order: the same for the same order.
func OperationName(store string, kind OperationType, order string) string {
	const base36 = 36
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(order)) // a hash takes everything
	return store + "-" + strings.ToLower(string(kind)) + "-" + strconv.FormatUint(hash.Sum64(), base36)
}
