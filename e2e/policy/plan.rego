# A policy of the kind that teams write for Terraform's plans: nothing in it is eltrain's but the two types. What a
# plan does is weighed, a plan that weighs too much has to be looked at by a person, and some things are never done.
package review

# What each action on an object of a type weighs.
weights := {
	"eltrain_job": {"create": 1, "update": 5, "delete": 50},
	"eltrain_slot": {"create": 1, "update": 2, "delete": 10},
}

most := 30

# no_seal lists the variables that must not be readable in a plan.
no_seal := {"token"}

# The changes that do something, by type.
changes[type] contains change if {
	some change in input.resource_changes
	type := change.type
	change.change.actions != ["no-op"]
}

# How often an action occurs. A replacement is a deletion and a creation.
count_of(type, action) := count([c |
	some c in object.get(changes, type, set())
	some a in c.change.actions
	a == action
])

score := sum([total |
	some type, actions in weights
	some action, weight in actions
	total := weight * count_of(type, action)
])

deny contains msg if {
	score > most
	msg := sprintf("the plan weighs %d, and %d is the most", [score, most])
}

deny contains msg if {
	some change in changes.eltrain_job
	change.change.actions == ["delete"]
	startswith(change.name, "prod-")
	msg := sprintf("%s is a production job and is not deleted", [change.address])
}

deny contains msg if {
	some change in changes.eltrain_slot
	change.change.after.resources.cpu > 1
	msg := sprintf("%s wants %v cores", [change.address, change.change.after.resources.cpu])
}

deny contains msg if {
	some name in no_seal
	value := input.variables[name].value
	value != "(sensitive value)"
	msg := sprintf("the variable %s is not sensitive", [name])
}

default allow := false

allow if count(deny) == 0
