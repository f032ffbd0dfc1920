#!/bin/sh
# deploy/smoke.sh deploy IMAGE: a new task definition with this image; the service takes it up, by blue/green or task by
#                               task as it was made, and goes back by itself on alarms.
# deploy/smoke.sh try URL:      what must work right after a deployment. BROKER_API_TOKEN is sent, or the newest of the secret that
#                               BROKER_TOKEN_SECRET names. With ALB_DNS_NAME that load balancer is asked, under the URL's name.
# deploy/smoke.sh back ARN:     the service takes up this task definition again, which `deploy` has named as `previous`.
set -eu
described() { aws ecs describe-services --cluster "$ECS_CLUSTER_NAME" --services "$ECS_SERVICE_NAME" --query "services[0].$1" --output text; }
# take_up ARN [IMAGE]: a copy of this task definition, with another image if one is given.
take_up() {
  aws ecs describe-task-definition --task-definition "$1" --query taskDefinition > task.json
  python3 - "${2:-}" <<'PYTHON'
import json, sys
task = json.load(open("task.json"))
for container in task["containerDefinitions"]:
    if sys.argv[1] and container["name"] in ("sandyard", "upgrade"):
        container["image"] = sys.argv[1]
for name in ("taskDefinitionArn", "revision", "status", "requiresAttributes", "compatibilities", "registeredAt", "registeredBy"):
    task.pop(name, None)
json.dump(task, open("task.json", "w"))
PYTHON
  if [ "$(described deploymentController.type)" = CODE_DEPLOY ]; then
    aws ecs deploy --cluster "$ECS_CLUSTER_NAME" --service "$ECS_SERVICE_NAME" --task-definition task.json --codedeploy-appspec deploy/appspec.yaml
  else
    new=$(aws ecs register-task-definition --cli-input-json file://task.json --query taskDefinition.taskDefinitionArn --output text)
    aws ecs update-service --cluster "$ECS_CLUSTER_NAME" --service "$ECS_SERVICE_NAME" --task-definition "$new" --query service.serviceArn --output text
    aws ecs wait services-stable --cluster "$ECS_CLUSTER_NAME" --services "$ECS_SERVICE_NAME"
    [ "$(described taskDefinition)" = "$new" ] || { echo "the deployment was undone; see the alarms and the service's events" >&2; exit 1; }
  fi
}
case "$1" in
deploy)
  previous=$(described taskDefinition)
  echo "previous=$previous" >> "${GITHUB_OUTPUT:-/dev/stdout}"
  take_up "$previous" "$2"
  ;;
back) take_up "$2" ;;
try)
  url=$2
  ask() { curl -fsS ${ALB_DNS_NAME:+--connect-to "::$ALB_DNS_NAME:"} "$@"; }
  ask --retry 10 --retry-delay 3 --retry-all-errors "$url/readyz"
  token=${BROKER_API_TOKEN:-$(aws secretsmanager get-secret-value --secret-id "$BROKER_TOKEN_SECRET" --query SecretString --output text)}
  token=${token%%,*}
  track="smoke-$(date +%s)"
  lease() { ask -X POST "$url/v1/allocate" -H "Authorization: Bearer $token" -H "X-Track-ID: $track"; }
  first=$(lease); second=$(lease)
  [ "$first" = "$second" ] || { echo "a repeat gave another lease" >&2; exit 1; }
  id=$(printf '%s' "$first" | sed 's/.*"sandbox_id":"\([^"]*\)".*/\1/')
  ask -X POST "$url/v1/sandboxes/$id/mark-for-deletion" -H "Authorization: Bearer $token" -H "X-Track-ID: $track"
  ;;
*) sed -n 's/^# //p' "$0" >&2; exit 2 ;;
esac
