package page

type Order struct{ ID, Cents uint }
