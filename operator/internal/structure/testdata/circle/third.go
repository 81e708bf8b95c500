package circle

type third struct{}

func (third) method() int { return newThing().field }
