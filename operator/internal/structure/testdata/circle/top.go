package circle

// Top is above the circle.
func Top() int { return newThing().field }
