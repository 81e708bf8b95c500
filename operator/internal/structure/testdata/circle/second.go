package circle

func second() int { return third{}.method() }
