// Package faults starts a store of real processes on one machine, does harm to it, and holds against a model what clients saw meanwhile.
package faults
