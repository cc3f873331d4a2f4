# cmake -DCOMMAND="a;b;c" -DCODE=69 -DWORDS="regular expression" -P expect_failure.cmake
# Runs a command that must end with this exit code, and say this, within 10 seconds.
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text TIMEOUT 10)
if(NOT code STREQUAL CODE OR NOT text MATCHES "${WORDS}")
  message(FATAL_ERROR "exit ${code} (expected ${CODE}), expected words: ${WORDS}\n${text}")
endif()
